// One batch, split any way, must give one gradient: gradient accumulation, and the last batch of an epoch, rest on it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "invar/diagnose/check_double.h"
#include "invar/diagnose/check_parts.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 8;

struct Comparison {
    double difference = 0.0;  // norm of the difference
    double bound = 0.0;       // what rounding may make of it
    double norm = 0.0;        // of the whole batch's gradient
    double factor = 1.0;      // that fits best
    double left = 0.0;        // norm of what differs after it
};

Comparison compare(const ParameterValues& whole, const ParameterValues& parts, double magnitude) {
    Comparison c;
    double product = 0.0, squares = 0.0, difference = 0.0;
    const auto each = [&](const auto& f) {
        for (std::size_t p = 0; p < whole.size(); ++p)
            for (std::size_t i = 0; i < std::max(whole[p].size(), parts[p].size()); ++i)
                f(i < whole[p].size() ? whole[p][i] : 0.0, i < parts[p].size() ? parts[p][i] : 0.0);
    };
    each([&](double a, double b) {
        product += a * b;
        squares += a * a;
        difference += (a - b) * (a - b);
    });
    c.factor = squares > 0 ? product / squares : 1.0;
    double left = 0.0;
    each([&](double a, double b) { left += (b - c.factor * a) * (b - c.factor * a); });
    c.difference = std::sqrt(difference);
    c.left = std::sqrt(left);
    c.norm = std::sqrt(squares);
    // A million roundings of what single samples contribute: far more than any element sees, and far less than a fault.
    c.bound = 0x1p20 * std::numeric_limits<double>::epsilon() * magnitude;
    return c;
}

double norm_of(const ParameterValues& gradients) {
    double squares = 0.0;
    for (const std::vector<double>& each : gradients)
        for (const double g : each) squares += g * g;
    return std::sqrt(squares);
}

}  // namespace

SplitCheck check_split(const Task& task, const Config& config) {
    SplitCheck result;
    if (const std::string why = task.why_loss_is_no_mean(); !why.empty()) {
        result.mark = Mark::warn;
        result.text = fmt::format(
            "not checked: {}, so a batch is not the mean of its parts, nor is a step of several batches "
            "(trainer.accumulate_grad_batches) one large one",
            why);
        return result;
    }
    const std::shared_ptr<const Dataset> data = task.data(Split::train);
    // An even number of them, so that there are halves.
    const std::int64_t even = data->size() - data->size() % 2;
    const std::vector<std::int64_t> samples = spread_samples(*data, std::min(kSamples, even));
    const std::int64_t n = std::int64_t(samples.size());
    DoubleModel model(task, config);
    const auto gradients = [&](const std::vector<std::int64_t>& parts) {
        std::vector<Batch> group;
        std::size_t at = 0;
        for (const std::int64_t part : parts) {
            group.push_back(model.read(Split::train, std::span(samples).subspan(at, std::size_t(part))));
            at += std::size_t(part);
        }
        return model.gradients(group);
    };
    // Dropout draws other masks for other batches, and batch norm takes its statistics from them; both are off here.
    model.module().eval();
    ParameterValues whole;
    double magnitude = 0.0;
    try {
        if (n < 2 || model.learning().empty()) {
            result.mark = Mark::warn;
            result.text = n < 2 ? "not checked: a single sample cannot be split" : "not checked: no parameter learns";
            return result;
        }
        whole = gradients({n});
        for (std::int64_t i = 0; i < n; ++i) {
            const Batch one = model.read(Split::train, std::span(samples).subspan(std::size_t(i), 1));
            magnitude += norm_of(model.gradients({&one, 1}));
        }
    } catch (const Error& error) {
        result.mark = Mark::warn;
        result.text = fmt::format("not checked: {}", error.what());
        return result;
    }
    const std::vector<std::vector<std::int64_t>> splits = {
        {n / 2, n / 2}, {1, n - 1}, std::vector<std::int64_t>(std::size_t(n), 1)};
    for (const std::vector<std::int64_t>& parts : splits) {
        const Comparison c = compare(whole, gradients(parts), magnitude + norm_of(whole));
        const double relative = c.norm > 0 ? c.difference / c.norm : c.difference;
        if (result.parts.empty() || relative > result.difference) {
            result.difference = relative;
            result.parts = parts;
        }
        if (c.difference <= c.bound) continue;
        result.mark = Mark::fail;
        result.parts = parts;
        result.factor = c.factor;
        result.text = fmt::format(
            "batches of {} samples do not add up to the gradient of one of {}: ", fmt::join(parts, " and "), n);
        if (c.left <= c.bound && std::fabs(c.factor * double(parts.size()) - 1) < 1e-6)
            result.text += fmt::format(
                "they give {:.4g} of it, so the loss is a sum over samples and must be their mean", c.factor);
        else if (c.left <= c.bound)
            result.text +=
                fmt::format("they give {:.4g} of it; the loss must be the mean over a batch's samples", c.factor);
        else
            result.text += fmt::format(
                "they differ by {:.3g}%; is the loss the mean over samples, and does no sample depend on others?",
                100 * relative);
        return result;
    }
    result.text = fmt::format("a batch of {} samples has the gradient of its parts, however it is split (to {:.2g})", n,
                              result.difference);
    return result;
}

}  // namespace invar
