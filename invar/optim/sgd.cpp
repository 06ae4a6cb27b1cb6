#include "invar/core/error.h"
#include "invar/optim/specs.h"

namespace invar {

namespace {

void make_sgd(const SgdOptions& options, OptimizerSpec& spec) {
    check<UsageError>(!options.nesterov || options.momentum > 0,
                      "optimizer.nesterov = true: needs optimizer.momentum above 0");
    spec.kind = OptimizerSpec::Kind::sgd;
    spec.momentum = options.momentum;
    spec.nesterov = options.nesterov;
}

const RegisterOptimizer<SgdOptions> kSgd{
    "sgd",
    "Stochastic gradient descent, with momentum or without.",
    make_sgd,
    {key("momentum", &SgdOptions::momentum, below(0, 1), "Share of the last update that is kept."),
     key("nesterov", &SgdOptions::nesterov, any(), "Nesterov's momentum.")}};

}  // namespace

}  // namespace invar
