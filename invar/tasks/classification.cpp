#include "invar/tasks/classification.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "invar/tasks/prediction.h"
#include "invar/tasks/registry.h"

namespace invar {

namespace {

// Before it would only make figures wrong.
void check_rows(const Batch& batch) {
    check(batch["y"].shape().rank() == 0 || batch["y"].size(0) == batch.size,
          "a batch of {} samples has labels {}: its size must be their number", batch.size, batch["y"].str());
}

}  // namespace

Tensor cross_entropy_loss(Module& model, const Batch& batch) {
    return smoothed_cross_entropy_loss(model, batch, 0);
}

Tensor smoothed_cross_entropy_loss(Module& model, const Batch& batch, double label_smoothing) {
    check_rows(batch);
    check<UsageError>(!is_floating(batch["y"].dtype()),
                      "task classification tells classes apart, and y is {}; use task=regression, or, where a table's "
                      "numbers are classes, data.predict=classes",
                      batch["y"].str());
    const Tensor& target = batch[batch.has("targets") ? "targets" : "y"];
    return ops::cross_entropy(model(batch["x"]), target, {.label_smoothing = label_smoothing});
}

Classification::Classification(TaskParts parts, ClassificationOptions options)
    : parts_(std::move(parts)), options_(options) {}

Tensor Classification::loss(Module& model, const Batch& batch) const {
    return weighted(smoothed_cross_entropy_loss(model, batch, options_.label_smoothing));
}

Tensor Classification::weighted(const Tensor& mean) const {
    return options_.loss_weight == 1.0 ? mean : mean * options_.loss_weight;
}

std::vector<Metric> Classification::metrics() const {
    Metric accuracy{.name = "accuracy", .print = Metric::Print::percent};
    if (const std::int64_t classes = parts_.info().outputs; classes > 0) accuracy.chance = 1.0 / double(classes);
    return {mean_loss(), accuracy};
}

std::vector<double> Classification::measure(Module& model, const Batch& batch) const {
    check_rows(batch);
    const Tensor logits = model(batch["x"]);
    const double loss = ops::cross_entropy(logits, batch["y"], {.reduction = ops::Reduction::sum}).item();
    const std::vector<std::int64_t> guesses = ops::argmax(logits, -1).to_vector<std::int64_t>();
    const std::vector<std::int64_t> labels = batch["y"].to_vector<std::int64_t>();
    std::int64_t right = 0, counted = 0;  // labels that the loss ignores count neither way
    for (std::size_t i = 0; i < guesses.size(); ++i)
        right += guesses[i] == labels[i], counted += labels[i] != ops::ClassLossOptions{}.ignore_index;
    return {loss, double(counted), double(right), double(counted)};
}

std::optional<ImagePrediction> Classification::predict(Module& model, const SeenImage& image) const {
    constexpr std::size_t kTold = 5, kShown = 3;
    const std::vector<float> shares = ops::softmax(ops::cast(model(image.x), Dtype::f32), -1).to_vector<float>();
    const std::vector<std::string> names = parts_.data(Split::test)->class_names();
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return shares[i] >= 0 ? shares[i] : -1; });
    ImagePrediction prediction;
    nlohmann::ordered_json& classes = prediction.found["classes"];
    for (std::size_t rank = 0; rank < std::min(kTold, order.size()); ++rank) {
        const std::size_t label = order[rank];
        const std::string name = label < names.size() ? names[label] : std::to_string(label);
        classes.push_back(
            {{"label", label}, {"name", name}, {"probability", std::round(1e6 * double(shares[label])) / 1e6}});
        if (rank < kShown) prediction.cells.push_back(fmt::format("{} {:.1f}%", name, 100 * shares[label]));
    }
    return prediction;
}

namespace {

const RegisterTask<ClassificationOptions> kClassification{
    "classification",
    "Tell classes apart: cross entropy, judged by accuracy.",
    [](const ClassificationOptions& options, const TaskParts& parts) {
        return std::make_shared<Classification>(parts, options);
    },
    {key("loss_weight", &ClassificationOptions::loss_weight, above(0),
         "Factor on the loss, as where it is one of several.", {"loss.weight"}),
     key("label_smoothing", &ClassificationOptions::label_smoothing, below(0, 1),
         "Share of each label that all classes get alike; validation does without.")}};

}  // namespace

}  // namespace invar
