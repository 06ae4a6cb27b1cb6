#include "invar/diagnose/replay.h"

#include <cmath>
#include <optional>
#include <set>

#include "invar/amp/autocast.h"
#include "invar/kernels/devices.h"
#include "invar/ops/ops.h"
#include "invar/train/step.h"

namespace invar {

namespace {

// What a forward pass leaves behind besides its result, put back at the end of a scope.
class Rewind {
  public:
    Rewind(Module& model, RngState start) : model_(model), rng_(default_generator().state()), mode_(model.training()) {
        buffers_ = model.state_dict();
        for (const Parameter* parameter : model.parameters()) buffers_.erase(parameter->name);
        default_generator().set_state(start);
        model.train();
    }
    ~Rewind() {
        model_.load_state_dict(buffers_, false);
        default_generator().set_state(rng_);
        model_.train(mode_);
    }
    Rewind(const Rewind&) = delete;
    Rewind& operator=(const Rewind&) = delete;

  private:
    Module& model_;
    StateDict buffers_;
    RngState rng_;
    bool mode_;
};

}  // namespace

WithoutOverrides::WithoutOverrides(Module& model) {
    for (const auto& [path, module] : model.modules()) {
        if (!module->precision()) continue;
        taken_.emplace_back(module, *module->precision());
        module->set_precision({});
    }
}
WithoutOverrides::~WithoutOverrides() {
    for (const auto& [module, precision] : taken_) module->set_precision(precision);
}

Replayed replay(Module& model, Optimizer& optimizer, const StepStart& start, const ReplayOptions& options) {
    const Rewind rewind(model, start.rng);
    std::optional<WithoutOverrides> plain;
    if (!options.overrides) plain.emplace(model);
    optimizer.zero_grad();
    Replayed result;
    const WatchScope watch(options.watcher);
    forward_backward(options.loss, model, options.precision, start.group, [&](const Tensor& loss) {
        result.loss += loss.item();
        Tensor scaled = loss;
        if (options.scale != 1.0) {
            const ModuleScope scope("loss scale");
            scaled = loss * options.scale;
        }
        backward(scaled);  // outside that scope: a checkpointed region runs its modules again
    });
    const Tensor gradients = optimizer.store().gradients();
    result.finite = std::isfinite(result.loss) && kernels_for(gradients.device()).all_finite(gradients.view());
    return result;
}

}  // namespace invar
