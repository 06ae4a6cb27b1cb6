#include "invar/safety/replay.h"

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

LossFunction loss_of(const Setup& setup) {
    return
        [loss = setup.loss](const Tensor& output, const Batch& batch) { return training_loss(loss, output, batch.y); };
}

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
    const Tf32Scope tf32(options.precision.kind == Precision::Kind::tf32);
    std::int64_t samples = 0;
    for (const Batch& batch : start.group) samples += batch.size;

    optimizer.zero_grad();
    Replayed result;
    const WatchScope watch(options.watcher);
    for (const Batch& batch : start.group) {
        Tensor loss;
        {
            const Autocast cast(options.precision);
            const Tensor output = model(batch.x);
            const ModuleScope scope("loss");
            loss = options.loss(output, batch);
        }
        const double share = start.group.size() > 1 ? double(batch.size) / double(samples) : 1.0;
        result.loss += share * loss.item();
        {
            const ModuleScope scope("loss scale");
            if (share != 1.0) loss = loss * share;
            if (options.scale != 1.0) loss = loss * options.scale;
        }
        backward(loss);  // outside that scope: a checkpointed region runs its modules again
    }
    const Tensor gradients = optimizer.store().gradients();
    result.finite = std::isfinite(result.loss) && kernels_for(gradients.device()).all_finite(gradients.view());
    return result;
}

}  // namespace invar
