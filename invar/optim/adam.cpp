#include "invar/optim/specs.h"

namespace invar {

namespace {

template <OptimizerSpec::Kind kind>
void make_adam(const AdamOptions& options, OptimizerSpec& spec) {
    spec.kind = kind;
    spec.beta1 = options.betas[0];
    spec.beta2 = options.betas[1];
    spec.eps = options.eps;
}

std::vector<Key> adam_keys() {
    return {key("betas", &AdamOptions::betas, below(0, 1), "Decay of the averages of gradient and square."),
            key("eps", &AdamOptions::eps, above(0), "Added to the denominator.")};
}

const RegisterOptimizer<AdamOptions> kAdam{"adam", "Adam; weight decay is part of the gradient.",
                                           make_adam<OptimizerSpec::Kind::adam>, adam_keys()};
const RegisterOptimizer<AdamOptions> kAdamW{"adamw", "Adam with weight decay apart from the gradient.",
                                            make_adam<OptimizerSpec::Kind::adamw>, adam_keys()};

}  // namespace

}  // namespace invar
