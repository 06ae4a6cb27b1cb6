// Task: what is trained. Its data, its model, the loss of a batch and the metrics it is judged by; training,
// evaluation, replay, diagnosis, tuning, validation, benchmarks and reports know nothing else of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "invar/core/stopped.h"
#include "invar/data/dataset.h"
#include "invar/nn/module.h"
#include "invar/tasks/metric.h"

namespace invar {

// The mean over a batch's samples of what is minimised: a scalar.
using LossFunction = std::function<Tensor(Module& model, const Batch& batch)>;

// What speed is counted in, and how many of them a sample is.
struct SpeedUnit {
    std::string name = "samples";
    double per_sample = 1;
};

// One line for whoever trains or judges a model.
struct Remark {
    std::string text;
    bool warning = false;
};

// Batches in turn, nothing behind the last.
using NextBatch = std::function<std::optional<Batch>()>;

struct ImagePrediction;  // tasks/prediction.h

// Serves any number of runs, so nothing in it changes. What is random in make_model comes from default_generator().
class Task {
  public:
    virtual ~Task() = default;
    virtual std::string name() const = 0;
    virtual std::shared_ptr<const Dataset> data(Split split) const = 0;
    virtual std::unique_ptr<Module> make_model() const = 0;
    virtual Tensor loss(Module& model, const Batch& batch) const = 0;

    // What a validation measures, "loss" first; the second, or that one alone, is what a task is compared by.
    virtual std::vector<Metric> metrics() const;
    // What a batch adds to the sums of all metrics, one after the other. The model is in evaluation mode.
    virtual std::vector<double> measure(Module& model, const Batch& batch) const;

    // What a model says of an image by itself; nothing where the task has nothing to say of one. The model is in
    // evaluation mode here and below.
    virtual std::optional<ImagePrediction> predict(Module& model, const SeenImage& image) const;
    // What a model makes of samples, to look at: an image for each, labels drawn in, or none at all.
    virtual std::vector<Image> pictures(Module& model, const NextBatch& next) const;

    // Before the first step: what data and settings allow. It looks at so few samples that nobody has to wait, and at
    // no more when somebody asks it to stop.
    virtual std::vector<Remark> remarks_on_data(const Stopped& stopped = {}) const;
    // Of a model: what its metrics do not tell, from as many batches of the validation data as it takes.
    virtual std::vector<Remark> remarks_on_model(Module& model, const NextBatch& next) const;

    // Why the loss of a batch is not the mean over its samples, in a few words; "" where it is. Where it is not,
    // batches that make up a step (trainer.accumulate_grad_batches) are not the one large batch: each counts by its
    // samples.
    virtual std::string why_loss_is_no_mean() const { return ""; }

    // Where samples differ in size, or are not what people count.
    virtual SpeedUnit speed_unit() const { return {}; }

    // "loss", the mean over all samples: the first of a task's metrics.
    static Metric mean_loss();
};

}  // namespace invar
