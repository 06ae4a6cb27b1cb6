// Regression: samples x with numbers y, predicted by a network of as many outputs, judged by the squared error.
#pragma once

#include "invar/tasks/parts.h"
#include "invar/tasks/task.h"

namespace invar {

// r2, the share of the variance of y's numbers, each about its own mean, that is explained: 0 is what the means would
// give.
Metric explained_variance(std::int64_t outputs);
// What a batch of so many samples adds to Task::mean_loss(), by mean squares, and to explained_variance().
std::vector<double> squared_error_sums(const Tensor& guesses, const Tensor& y, std::int64_t samples);

class Regression : public Task {
  public:
    explicit Regression(TaskParts parts) : parts_(std::move(parts)) {}

    std::string name() const override { return "regression"; }
    std::shared_ptr<const Dataset> data(Split split) const override { return parts_.data(split); }
    std::unique_ptr<Module> make_model() const override { return parts_.make_model(); }
    // The mean of squares over all numbers of y, f32 [n, outputs].
    Tensor loss(Module& model, const Batch& batch) const override;
    // Beside that r2.
    std::vector<Metric> metrics() const override;
    std::vector<double> measure(Module& model, const Batch& batch) const override;

  private:
    TaskParts parts_;
};

}  // namespace invar
