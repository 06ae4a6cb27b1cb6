#include "invar/tasks/regression.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"

namespace invar {

namespace {

// From the number of samples, then for each number of y the sums of y, y^2 and (y - guess)^2.
double explained(std::span<const double> s) {
    double variance = 0.0, errors = 0.0;
    for (std::size_t i = 1; i + 2 < s.size(); i += 3) {
        variance += s[i + 1] - s[i] * s[i] / s[0];
        errors += s[i + 2];
    }
    return variance > 0 ? 1.0 - errors / variance : 0.0;
}

Tensor guess(Module& model, const Batch& batch) {
    const Tensor y = model(batch["x"]);
    check<UsageError>(
        is_floating(batch["y"].dtype()),
        "task regression predicts numbers, and y is {}; use task=classification, or, where a table's whole "
        "numbers are to be predicted, data.predict=numbers",
        batch["y"].str());
    check(y.shape() == batch["y"].shape(), "the model's outputs are {}, and y is {}", y.shape().str(),
          batch["y"].shape().str());
    return y;
}

}  // namespace

Metric explained_variance(std::int64_t outputs) {
    return {.name = "r2", .chance = 0.0, .sums = int(1 + 3 * outputs), .value = explained};
}

std::vector<double> squared_error_sums(const Tensor& guesses, const Tensor& y, std::int64_t samples) {
    check(y.shape().rank() == 2 && y.size(0) == samples, "a batch of {} samples has y {}: a row for each is needed",
          samples, y.str());
    const std::vector<double> guessed = guesses.to_vector<double>(), right = y.to_vector<double>();
    const std::size_t outputs = std::size_t(y.size(1));
    std::vector<double> sums(2 + 1 + 3 * outputs);
    double errors = 0.0;
    for (std::size_t i = 0; i < right.size(); ++i) {
        double* const own = sums.data() + 3 + 3 * (i % outputs);
        const double error = (right[i] - guessed[i]) * (right[i] - guessed[i]);
        own[0] += right[i], own[1] += right[i] * right[i], own[2] += error;
        errors += error;
    }
    sums[0] = errors / double(outputs), sums[1] = sums[2] = double(samples);
    return sums;
}

Tensor Regression::loss(Module& model, const Batch& batch) const {
    return ops::mse_loss(guess(model, batch), batch["y"]);
}

std::vector<Metric> Regression::metrics() const {
    return {mean_loss(), explained_variance(parts_.info().outputs)};
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
