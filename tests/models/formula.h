// Weights, images and labels by formula, the same here and in golden.py, so that a few numbers pasted into a test
// compare whole networks with PyTorch's.
#pragma once

#include <cmath>
#include <vector>

#include "invar/nn/module.h"

namespace invar {

inline double formula(std::int64_t i, std::int64_t key) {
    return std::sin(double(i * i % 10007 + key));
}

// In the file's layout, by the order of the parameters.
inline void fill_by_formula(Module& model) {
    StateDict state = model.state_dict();
    std::int64_t key = 0;
    for (const Parameter* parameter : model.parameters()) {
        const Tensor& target = state.at(parameter->name);
        const double fan = target.rank() > 1 ? double(target.numel() / target.size(0)) : 64.0;
        std::vector<float> values;
        for (std::int64_t i = 0; i < target.numel(); ++i)
            values.push_back(float(std::pow(fan, -0.5) * formula(i, key)));
        state[parameter->name] = Tensor::from(values, target.shape());
        ++key;
    }
    model.load_state_dict(state);
}

inline Tensor formula_images(std::int64_t batch, std::int64_t step, std::int64_t height, std::int64_t width,
                             std::int64_t channels) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < batch * height * width * channels; ++i)
        values.push_back(float(std::sin(0.01 * double((i * i + 31 * step) % 1013))));
    return Tensor::from(values, {batch, height, width, channels});
}

inline Tensor formula_labels(std::int64_t batch, std::int64_t step) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < batch; ++i) labels.push_back((3 * i + step) % 10);
    return Tensor::from(labels, {batch});
}

}  // namespace invar
