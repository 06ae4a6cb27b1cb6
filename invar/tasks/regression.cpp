#include "invar/tasks/regression.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"

namespace invar {

namespace {

// From the sums of 1, y, y^2 and (y - guess)^2.
double explained(std::span<const double> s) {
    const double variance = s[2] - s[1] * s[1] / s[0];
    return variance > 0 ? 1.0 - s[3] / variance : 0.0;
}

Tensor guess(Module& model, const Batch& batch) {
    const Tensor y = model(batch["x"]);
    check<UsageError>(is_floating(batch["y"].dtype()),
                      "task regression predicts numbers, and y is {}; use task=classification", batch["y"].str());
    check(y.shape() == batch["y"].shape(), "the model's outputs are {}, and y is {}", y.shape().str(),
          batch["y"].shape().str());
    return y;
}

}  // namespace

Metric explained_variance() {
    return {.name = "r2", .chance = 0.0, .sums = 4, .value = explained};
}

std::vector<double> squared_error_sums(const Tensor& guesses, const Tensor& y, std::int64_t samples) {
    const std::vector<double> guessed = guesses.to_vector<double>(), right = y.to_vector<double>();
    double sum = 0.0, squares = 0.0, errors = 0.0;
    for (std::size_t i = 0; i < right.size(); ++i) {
        sum += right[i], squares += right[i] * right[i];
        errors += (right[i] - guessed[i]) * (right[i] - guessed[i]);
    }
    const double count = double(right.size());
    return {errors / count * double(samples), double(samples), count, sum, squares, errors};
}

Tensor Regression::loss(Module& model, const Batch& batch) const {
    return ops::mse_loss(guess(model, batch), batch["y"]);
}

std::vector<Metric> Regression::metrics() const {
    return {mean_loss(), explained_variance()};
}

std::vector<double> Regression::measure(Module& model, const Batch& batch) const {
    return squared_error_sums(guess(model, batch), batch["y"], batch.size);
}

namespace {

struct RegressionOptions {};
const RegisterTask<RegressionOptions> kRegression{
    "regression", "Predict numbers: mean squared error, judged by the share of the variance explained (r2).",
    [](const RegressionOptions&, const TaskParts& parts) { return std::make_shared<Regression>(parts); }};

}  // namespace

}  // namespace invar
