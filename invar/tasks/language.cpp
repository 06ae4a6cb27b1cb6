// Language modelling: from x, tokens in a row, the ones that follow, y. Any model that gives logits for each place can
// be trained; a LanguageModel works its loss out itself.
#include <cmath>

#include "invar/core/error.h"
#include "invar/models/language_model.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"

namespace invar {

namespace {

double perplexity(std::span<const double> sums) {
    return std::exp(Metric::ratio(sums));
}

class Language : public Task {
  public:
    explicit Language(TaskParts parts) : parts_(std::move(parts)) {}

    std::string name() const override { return "language"; }
    std::shared_ptr<const Dataset> data(Split split) const override { return parts_.data(split); }
    std::unique_ptr<Module> make_model() const override { return parts_.make_model(); }

    Tensor loss(Module& model, const Batch& batch) const override {
        const Tensor &x = batch["x"], &y = batch["y"];
        check<UsageError>(x.rank() == 2 && y.shape() == x.shape() && !is_floating(x.dtype()),
                          "task language predicts the token behind each of x, and x is {}, y {}; use data=text",
                          x.str(), y.str());
        const bool documents = batch.has("documents");
        if (dynamic_cast<LanguageModel*>(&model) != nullptr)
            return documents ? model(x, y, batch["documents"])[0] : model(x, y)[0];
        check<UsageError>(!documents, "data.documents: this model does not keep attention within documents");
        return ops::cross_entropy(model(x), y);
    }
    std::vector<Metric> metrics() const override {
        const double vocabulary = double(std::max<std::int64_t>(parts_.info().outputs, 1));
        return {mean_loss(),
                {.name = "perplexity", .better = Better::lower, .chance = vocabulary, .sums = 2, .value = perplexity}};
    }
    SpeedUnit speed_unit() const override { return {"tokens", double(parts_.info().input.numel())}; }
    std::vector<double> measure(Module& model, const Batch& batch) const override {
        const double tokens = double(batch["y"].numel()), sum = loss(model, batch).item() * tokens;
        return {sum, tokens, sum, tokens};
    }

  private:
    TaskParts parts_;
};

struct LanguageOptions {};
const RegisterTask<LanguageOptions> kLanguage{
    "language", "Predict the next token: cross entropy, judged by perplexity.",
    [](const LanguageOptions&, const TaskParts& parts) { return std::make_shared<Language>(parts); }};

}  // namespace

}  // namespace invar
