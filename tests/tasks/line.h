// A small regression: y is a fixed linear function of three numbers, and a little noise.
#pragma once

#include "invar/core/rng.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"
#include "invar/tasks/regression.h"

namespace invar {

class LineData final : public Dataset {
  public:
    explicit LineData(std::int64_t size) : size_(size) {}
    std::string name() const override { return "line"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{3}, 1}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        Batch batch({{"x", Tensor::empty({n, 3}, Dtype::f32)}, {"y", Tensor::empty({n, 1}, Dtype::f32)}}, n);
        float* x = batch["x"].data<float>();
        float* y = batch["y"].data<float>();
        for (const std::int64_t index : indices) {
            const Random4 r = philox(1, std::uint64_t(index), 2);
            for (int i = 0; i < 3; ++i) x[i] = 2 * to_unit(r.v[i]) - 1;
            *y++ = 2 * x[0] - x[1] + 0.5f * x[2] + 1 + 0.01f * to_unit(r.v[3]);
            x += 3;
        }
        return batch;
    }

  private:
    std::int64_t size_;
};

// Answers the same to everything.
class Constant : public Module {
  public:
    explicit Constant(double value) : value_(value) {}
    Tensor forward(const Tensor& x) override { return ops::full({x.size(0), 1}, value_, Dtype::f32, x.device()); }

  private:
    double value_;
};

struct Line {
    explicit Line(std::int64_t size) : data(std::make_shared<LineData>(size)) {}
    Regression task() const {
        return Regression({data, data, [](const DataInfo& info) {
                               auto model = std::make_unique<Sequential>();
                               model->then(std::make_unique<Linear>(info.input[0], 8))
                                   .then(std::make_unique<Linear>(8, info.outputs));
                               return model;
                           }});
    }
    std::vector<double> answers() const {
        std::vector<std::int64_t> all(std::size_t(data->size()));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int64_t(i);
        return data->read(all)["y"].to_vector<double>();
    }
    double mean() const {
        double sum = 0;
        for (const double y : answers()) sum += y;
        return sum / double(data->size());
    }
    double variance() const {
        double sum = 0;
        const double middle = mean();
        for (const double y : answers()) sum += (y - middle) * (y - middle);
        return sum / double(data->size());
    }
    std::shared_ptr<const Dataset> data;
};

}  // namespace invar
