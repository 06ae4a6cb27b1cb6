// Classification: samples x with a label y each, told apart by a network that ends in logits.
#pragma once

#include "invar/tasks/task.h"

namespace invar {

// The mean cross entropy between what the model makes of x and the labels y.
Tensor cross_entropy_loss(Module& model, const Batch& batch);

struct ClassificationOptions {
    // What is minimised: the mean cross entropy, or, to show what happens then, the sums whose logarithm it is.
    enum class Loss : std::uint8_t { cross_entropy, exp };
    Loss loss = Loss::cross_entropy;
    double weight = 1.0;  // a factor on it; validation measures the plain cross entropy
};

class Classification : public Task {
  public:
    using MakeModel = std::function<std::unique_ptr<Module>(const DataInfo&)>;
    using OpenData = std::function<std::shared_ptr<const Dataset>(Split)>;
    // Data are opened when they are first asked for, once; not for the model's sake where `known` tells what they are.
    Classification(OpenData open, MakeModel make, ClassificationOptions options = {},
                   std::optional<DataInfo> known = {});
    Classification(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test, MakeModel make,
                   ClassificationOptions options = {});

    std::string name() const override { return "classification"; }
    std::shared_ptr<const Dataset> data(Split split) const override;
    std::unique_ptr<Module> make_model() const override;
    Tensor loss(Module& model, const Batch& batch) const override;
    std::vector<Metric> metrics() const override;
    std::vector<double> measure(Module& model, const Batch& batch) const override;

  private:
    DataInfo info() const;
    OpenData open_;
    MakeModel make_;
    ClassificationOptions options_;
    std::optional<DataInfo> known_;
    mutable std::shared_ptr<const Dataset> opened_[2];
};

}  // namespace invar
