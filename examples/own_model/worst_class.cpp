// task=worst_class: classification that is judged by the class it does worst on.
#include "invar/invar.h"
using namespace invar;
namespace {

// From how many of each class were right, and how many there were.
double worst(std::span<const double> sums) {
    double least = 1.0;
    for (int c = 0; c < 3; ++c) least = std::min(least, sums[3 + c] > 0 ? sums[c] / sums[3 + c] : 1.0);
    return least;
}

struct WorstClass : Classification {
    using Classification::Classification;
    std::vector<Metric> metrics() const override {
        Metric recall{.name = "worst_recall", .print = Metric::Print::percent, .chance = 1.0 / 3};
        recall.sums = 6, recall.value = worst;
        return {mean_loss(), recall};
    }
    std::vector<double> measure(Module& model, const Batch& batch) const override {
        const Tensor logits = model(batch["x"]);
        std::vector<double> sums(8);
        sums[0] = ops::cross_entropy(logits, batch["y"], {.reduction = ops::Reduction::sum}).item();
        sums[1] = double(batch.size);
        const auto guess = ops::argmax(logits, -1).to_vector<std::int64_t>();
        const auto label = batch["y"].to_vector<std::int64_t>();
        for (std::size_t i = 0; i < label.size(); ++i) sums[2 + label[i]] += guess[i] == label[i], sums[5 + label[i]]++;
        return sums;
    }
};

const RegisterTask<ClassificationOptions> kWorstClass{
    "worst_class", "Classification, judged by the class it does worst on.",
    [](const ClassificationOptions& o, const TaskParts& parts) { return std::make_shared<WorstClass>(parts, o); }};

}  // namespace
