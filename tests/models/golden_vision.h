// What the tests of residual networks and DBNet share: weights by golden_vision.py's formula, gradients held against
// its numbers, and every level of recomputation against none.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "invar/autograd/node.h"
#include "invar/core/memory.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/ops.h"
#include "tests/models/formula.h"

namespace invar {

// fill_by_formula, with vectors, which are those of norms for the most part, about a half.
inline void fill_about_half(Module& model) {
    fill_by_formula(model);
    const NoGrad no_grad;
    for (Parameter* parameter : model.parameters())
        if (parameter->value.rank() == 1) ops::copy_(parameter->value.detach(), parameter->value.detach() + 0.5);
}

// The norm of all, and the sum weighed by a formula, by which a permutation shows.
struct Sums {
    double norm = 0, weighted = 0;
};
inline Sums sums_of(const Tensor& x) {
    Sums sums;
    const std::vector<double> values = x.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
        sums.norm += values[i] * values[i], sums.weighted += values[i] * formula(std::int64_t(i), 0);
    sums.norm = std::sqrt(sums.norm);
    return sums;
}

struct GoldenGradient {
    const char* name;
    double norm, weighted;
};

// Relative to each gradient's norm.
inline void expect_gradients(Module& model, double all, const std::vector<GoldenGradient>& expected, double tolerance) {
    double squares = 0;
    std::size_t found = 0;
    for (const Parameter* parameter : model.parameters()) {
        const Sums sums = sums_of(to_file(parameter->value.grad(), parameter->layout));
        squares += sums.norm * sums.norm;
        for (const GoldenGradient& golden : expected) {
            if (parameter->name != golden.name) continue;
            ++found;
            EXPECT_NEAR(sums.norm, golden.norm, tolerance * golden.norm) << golden.name;
            EXPECT_NEAR(sums.weighted, golden.weighted, 4 * tolerance * golden.norm) << golden.name;
        }
    }
    EXPECT_EQ(found, expected.size());
    EXPECT_NEAR(std::sqrt(squares), all, tolerance * all);
}

// Loss, gradients and running statistics come out the same, to the bit, whatever is made anew.
inline void expect_recomputes(const std::function<std::unique_ptr<Module>()>& make,
                              const std::function<Tensor(Module&)>& loss_of) {
    const auto run = [&](Recompute level) {
        const std::unique_ptr<Module> model = make();
        if (level == Recompute::light) model->set_recompute(level);
        if (level == Recompute::block)
            for (Module* block : model->checkpoint_blocks()) block->set_recompute(level);
        const std::int64_t before = memory_stats({}).live_total;
        const Tensor loss = loss_of(*model);
        const std::int64_t kept = memory_stats({}).live_total - before;
        backward(loss);
        std::vector<double> all{loss.item()};
        for (const Parameter* parameter : model->parameters())
            for (const double g : parameter->value.grad().to_vector<double>()) all.push_back(g);
        for (const auto& [name, value] : model->state_dict())
            for (const double v : value.to_vector<double>()) all.push_back(v);
        return std::pair(all, kept);
    };
    const auto [all, kept] = run(Recompute::none);
    for (const Recompute level : {Recompute::light, Recompute::block}) {
        const auto [again, less] = run(level);
        EXPECT_EQ(again, all) << int(level);
        EXPECT_LE(less, level == Recompute::block ? kept - 1 : kept) << int(level);
    }
}

}  // namespace invar
