// Classification: samples x with a label y each, told apart by a network that ends in logits.
#pragma once

#include "invar/tasks/parts.h"
#include "invar/tasks/task.h"

namespace invar {

// The mean cross entropy between what the model makes of x and the labels y, or where samples were mixed (data/mixup.h)
// their targets.
Tensor cross_entropy_loss(Module& model, const Batch& batch);
// `label_smoothing`: the share of each target that all classes get alike.
Tensor smoothed_cross_entropy_loss(Module& model, const Batch& batch, double label_smoothing);

// Both change what is minimised; validation measures the plain cross entropy.
struct ClassificationOptions {
    double loss_weight = 1.0;
    double label_smoothing = 0.0;
};

class Classification : public Task {
  public:
    explicit Classification(TaskParts parts, ClassificationOptions options = {});

    std::string name() const override { return "classification"; }
    std::shared_ptr<const Dataset> data(Split split) const override { return parts_.data(split); }
    std::unique_ptr<Module> make_model() const override { return parts_.make_model(); }
    Tensor loss(Module& model, const Batch& batch) const override;
    // Beside the loss the share of labels that are guessed right.
    std::vector<Metric> metrics() const override;
    std::vector<double> measure(Module& model, const Batch& batch) const override;
    // The likeliest classes with their probabilities.
    std::optional<ImagePrediction> predict(Module& model, const SeenImage& image) const override;

  protected:
    Tensor weighted(const Tensor& mean) const;  // times options.loss_weight

  private:
    TaskParts parts_;
    ClassificationOptions options_;
};

}  // namespace invar
