// Whether evaluation is a function of the model and the samples: twice the same, and the model as before.
#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/kept_buffers.h"
#include "invar/diagnose/run_faults.h"
#include "invar/diagnose/significance.h"
#include "invar/ops/to.h"
#include "invar/train/review.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 8;
constexpr double kRounding = 1e-4;  // devices may add in another order each time

bool differ(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0.0, size = 0.0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        difference = std::max(difference, std::fabs(double(a[i]) - double(b[i])));
        size = std::max(size, std::fabs(double(a[i])));
    }
    return a.size() != b.size() || difference > kRounding * size;
}

// The first op that makes another result of the same inputs.
const SampledOps::Op* first_random(const SampledOps& a, const SampledOps& b) {
    for (std::size_t i = 0; i < std::min(a.ops.size(), b.ops.size()); ++i) {
        const SampledOps::Op &one = a.ops[i], &other = b.ops[i];
        if (one.name != other.name || one.inputs.size() != other.inputs.size()) return nullptr;
        bool same = true;
        for (std::size_t k = 0; k < one.inputs.size(); ++k) same = same && !differ(one.inputs[k], other.inputs[k]);
        if (same && differ(one.result, other.result)) return &one;
    }
    return nullptr;
}

}  // namespace

MaybeConcern evaluation_fault(Setup& setup) {
    const std::shared_ptr<const Dataset> data = setup.task->data(Split::test);
    const Batch batch = data->read(spread_samples(*data, kSamples)).map([&](const Tensor& tensor) {
        return ops::to(tensor, setup.device);
    });
    Module& model = *setup.model;
    const KeptBuffers buffers(model);
    SampledOps ops[2];
    std::vector<double> sums[2];
    {
        const EvaluationScope scope(model, kFullPrecision);
        for (int i = 0; i < 2; ++i) {
            const WatchScope watch(&ops[i]);
            sums[i] = setup.task->measure(model, batch);
        }
    }
    Concern concern;
    concern.kind = Concern::Kind::evaluation;
    const std::vector<float> first(sums[0].begin(), sums[0].end()), second(sums[1].begin(), sums[1].end());
    if (const SampledOps::Op* op = first_random(ops[0], ops[1]); op != nullptr || differ(first, second)) {
        concern.module = op != nullptr ? op->module : "";
        concern.text = fmt::format(
            "two evaluations of the same {} samples differ: {} is random in evaluation{}", batch.size,
            op != nullptr ? fmt::format("{} in {}", op->name, op->module.empty() ? "the model itself" : op->module)
                          : "something outside the operations",
            op != nullptr && op->name == "dropout" ? "; it must be on only where training() is" : "");
        return concern;
    }
    const std::string changed = buffers.first_changed();
    if (changed.empty()) return {};
    concern.module = module_of(changed);
    concern.text = fmt::format(
        "evaluation changes {}: what keeps it must do so only where training() is, as a norm in evaluation mode does",
        changed);
    return concern;
}

}  // namespace invar
