#include "invar/tasks/classification.h"

#include "invar/core/error.h"
#include "invar/ops/ops.h"

namespace invar {

Tensor cross_entropy_loss(Module& model, const Batch& batch) {
    return ops::cross_entropy(model(batch["x"]), batch["y"]);
}

Classification::Classification(OpenData open, MakeModel make, ClassificationOptions options,
                               std::optional<DataInfo> known)
    : open_(std::move(open)), make_(std::move(make)), options_(options), known_(std::move(known)) {}

Classification::Classification(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test,
                               MakeModel make, ClassificationOptions options)
    : Classification([=](Split split) { return split == Split::train ? train : test; }, std::move(make), options) {}

DataInfo Classification::info() const {
    return known_ ? *known_ : data(Split::train)->info();
}

std::shared_ptr<const Dataset> Classification::data(Split split) const {
    std::shared_ptr<const Dataset>& data = opened_[split == Split::train ? 0 : 1];
    if (!data) data = open_(split);
    return data;
}

std::unique_ptr<Module> Classification::make_model() const {
    return make_(info());
}

Tensor Classification::loss(Module& model, const Batch& batch) const {
    Tensor mean;
    if (options_.loss == ClassificationOptions::Loss::exp) {
        // The sum over the classes of exp(logit - logit of the label).
        const Tensor logits = model(batch["x"]);
        const Tensor margins = logits - ops::gather(logits, -1, ops::unsqueeze(batch["y"], -1));
        mean = ops::mean(ops::sum(ops::exp(margins), {-1}));
    } else {
        mean = cross_entropy_loss(model, batch);
    }
    return options_.weight == 1.0 ? mean : mean * options_.weight;
}

std::vector<Metric> Classification::metrics() const {
    Metric accuracy{.name = "accuracy", .print = Metric::Print::percent};
    if (const std::int64_t classes = info().outputs; classes > 0) accuracy.chance = 1.0 / double(classes);
    return {mean_loss(), accuracy};
}

std::vector<double> Classification::measure(Module& model, const Batch& batch) const {
    const Tensor logits = model(batch["x"]);
    const double loss = ops::cross_entropy(logits, batch["y"], {.reduction = ops::Reduction::sum}).item();
    const std::vector<std::int64_t> guesses = ops::argmax(logits, -1).to_vector<std::int64_t>();
    const std::vector<std::int64_t> labels = batch["y"].to_vector<std::int64_t>();
    std::int64_t right = 0;
    for (std::size_t i = 0; i < guesses.size(); ++i) right += guesses[i] == labels[i];
    return {loss, double(batch.size), double(right), double(batch.size)};
}

}  // namespace invar
