// Autoencoder: the network gives back its input through whatever is narrow in it. Labels play no part.
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"
#include "invar/tasks/regression.h"

namespace invar {

namespace {

struct AutoencoderOptions {};

class Autoencoder : public Task {
  public:
    explicit Autoencoder(const TaskParts& parts) : parts_(parts) {}

    std::string name() const override { return "autoencoder"; }
    std::shared_ptr<const Dataset> data(Split split) const override { return parts_.data(split); }
    std::unique_ptr<Module> make_model() const override {
        const DataInfo info = parts_.info();
        return parts_.make_model({info.input, info.input.numel()});
    }
    Tensor loss(Module& model, const Batch& batch) const override {
        return ops::mse_loss(model(batch["x"]), ops::flatten(batch["x"], 1));
    }
    // Beside that r2, the share of the variance that is given back.
    std::vector<Metric> metrics() const override {
        return {mean_loss(), explained_variance(parts_.info().input.numel())};
    }
    std::vector<double> measure(Module& model, const Batch& batch) const override {
        return squared_error_sums(model(batch["x"]), ops::flatten(batch["x"], 1), batch.size);
    }

  private:
    TaskParts parts_;
};

const RegisterTask<AutoencoderOptions> kAutoencoder{
    "autoencoder", "Give back the input: mean squared error, judged by the share of the variance given back (r2).",
    [](const AutoencoderOptions&, const TaskParts& parts) { return std::make_shared<Autoencoder>(parts); }};

}  // namespace

}  // namespace invar
