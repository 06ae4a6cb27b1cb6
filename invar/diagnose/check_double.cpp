#include "invar/diagnose/check_double.h"

#include <algorithm>

#include "invar/autograd/node.h"
#include "invar/ops/cast.h"
#include "invar/train/step.h"

namespace invar {

DoubleModel::DoubleModel(const Task& task, const Config& config)
    : task_(task), model_(make_initial_model(task, config)), plain_(*model_), rng_(default_generator().state()) {
    const NoGrad no_grad;
    for (Parameter* parameter : model_->parameters()) {
        Tensor& value = parameter->value;
        const bool learns = value.requires_grad();
        if (is_floating(value.dtype())) value = ops::cast(value.detach(), Dtype::f64).set_requires_grad(learns);
        if (learns) learning_.push_back(parameter);
    }
    model_->train();
}

Batch DoubleModel::read(Split split, std::span<const std::int64_t> samples) const {
    return task_.data(split)->read(samples).map(
        [](const Tensor& tensor) { return is_floating(tensor.dtype()) ? ops::cast(tensor, Dtype::f64) : tensor; });
}

void DoubleModel::run(std::span<const Batch> group, const std::function<void(const Tensor&)>& use) {
    default_generator().set_state(rng_);
    const LossFunction loss = [&](Module& model, const Batch& batch) { return task_.loss(model, batch); };
    forward_backward(loss, *model_, kFullPrecision, group, use);
}

double DoubleModel::loss(std::span<const Batch> group) {
    const NoGrad no_grad;
    double total = 0.0;
    run(group, [&](const Tensor& loss) { total += loss.item(); });
    return total;
}

ParameterValues DoubleModel::gradients(std::span<const Batch> group) {
    for (const Parameter* parameter : learning_) parameter->value.set_grad({});
    run(group, [](const Tensor& loss) {
        if (loss.requires_grad()) backward(loss);
    });
    ParameterValues all;
    for (const Parameter* parameter : learning_) {
        const Tensor gradient = parameter->value.grad();
        all.push_back(gradient ? gradient.to_vector<double>() : std::vector<double>());
    }
    return all;
}

ParameterValues DoubleModel::weights() const {
    ParameterValues all;
    for (const Parameter* parameter : learning_) all.push_back(parameter->value.to_vector<double>());
    return all;
}

void DoubleModel::set_weights(const ParameterValues& weights) {
    for (std::size_t i = 0; i < learning_.size(); ++i) {
        const Tensor& value = learning_[i]->value;  // dense: a cast makes it so
        std::copy(weights[i].begin(), weights[i].end(), value.data<double>());
        value.bump_version();
    }
}

}  // namespace invar
