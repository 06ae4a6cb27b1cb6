// Text detection: images in which a network such as DBNet finds texts by a map of probabilities, judged by how many of
// the boxes made from it fit (ICDAR 2015's protocol).
#pragma once

#include "invar/detect/boxes.h"
#include "invar/detect/icdar.h"
#include "invar/tasks/db_loss.h"
#include "invar/tasks/parts.h"
#include "invar/tasks/task.h"

namespace invar {

struct TextDetectionOptions {
    DbLossOptions loss;
    detect::BoxOptions boxes;
    detect::IcdarOptions protocol;
};

// What is found in the probability maps [n, height, width] of a batch, in pixels of the map.
std::vector<std::vector<detect::Detection>> find_texts(const Tensor& probability_logits,
                                                       const detect::BoxOptions& options = {});

// Over batches as data/text_batch.h has them, with models that give {probability logits, threshold logits}.
class TextDetection : public Task {
  public:
    explicit TextDetection(TaskParts parts, TextDetectionOptions options = {});

    std::string name() const override { return "text_detection"; }
    const TextDetectionOptions& options() const { return options_; }
    std::shared_ptr<const Dataset> data(Split split) const override { return parts_.data(split); }
    std::unique_ptr<Module> make_model() const override { return parts_.make_model(); }
    std::string why_loss_is_no_mean() const override;
    Tensor loss(Module& model, const Batch& batch) const override;
    // The loss, as if each image were a batch of its own, so that it does not depend on which are measured together;
    // then hmean, precision and recall over all texts.
    std::vector<Metric> metrics() const override;
    std::vector<double> measure(Module& model, const Batch& batch) const override;
    // The texts' outlines with their scores, and a picture of them.
    std::optional<ImagePrediction> predict(Module& model, const SeenImage& image) const override;
    // What was found beside what there is.
    std::vector<Image> pictures(Module& model, const NextBatch& next) const override;
    // The ceiling of the data to validate on, where they are TextImages.
    std::vector<Remark> remarks_on_data(const Stopped& stopped = {}) const override;
    // Thresholds that suit the model better, and why its H-mean is 0 where it is (tasks/text_review.h).
    std::vector<Remark> remarks_on_model(Module& model, const NextBatch& next) const override;

  private:
    TaskParts parts_;
    TextDetectionOptions options_;
};

}  // namespace invar
