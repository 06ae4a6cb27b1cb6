#include "invar/amp/autocast.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

CastPolicy& current_policy() {
    thread_local CastPolicy policy;
    return policy;
}

Precision& global_precision() {
    thread_local Precision precision = Precision::parse("32-true");
    return precision;
}

bool castable(const Tensor& tensor) {
    return tensor && is_floating(tensor.dtype()) && tensor.dtype() != Dtype::f64;
}

Dtype widest(std::span<const Tensor> inputs) {
    std::optional<Dtype> result;
    for (const Tensor& input : inputs)
        if (input && is_floating(input.dtype())) result = result ? promote(*result, input.dtype()) : input.dtype();
    return result.value_or(Dtype::f32);
}

bool any_of_dtype(std::span<const Tensor> inputs, Dtype dtype) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [dtype](const Tensor& input) { return input && input.dtype() == dtype; });
}

}  // namespace

Autocast::Autocast() : Autocast(global_precision()) {}

Autocast::Autocast(Dtype low, bool enabled, Level level)
    : Autocast(CastPolicy{enabled ? CastPolicy::Mode::low : CastPolicy::Mode::off, low, level}) {
    check<UsageError>(!enabled || is_sixteen_bit(low), "autocast runs in f16 or bf16, not in {}", name_of(low));
}

Autocast::Autocast(const CastPolicy& policy) : previous_(current_policy()) {
    current_policy() = policy;
}
Autocast::~Autocast() {
    current_policy() = previous_;
}
const CastPolicy& Autocast::current() {
    return current_policy();
}

CastPolicy Autocast::policy_of(const Precision& precision) {
    const Dtype low = precision.compute_dtype();
    if (!is_sixteen_bit(low)) return fp32();
    if (precision.level == Level::O0) return off();
    return {CastPolicy::Mode::low, low, precision.mixed() ? precision.level : Level::O3};
}

std::optional<Dtype> cast_target(const CastPolicy& policy, CastClass cast, std::span<const Tensor> inputs) {
    bool any = false;
    for (const Tensor& input : inputs) any = any || castable(input);
    if (!any) return std::nullopt;
    switch (policy.mode) {
        case CastPolicy::Mode::fp32:
            return cast == CastClass::keep || cast == CastClass::wide_inside
                       ? std::nullopt
                       : std::optional(promote(widest(inputs), Dtype::f32));
        case CastPolicy::Mode::off:
            return cast == CastClass::widest ? std::optional(widest(inputs)) : std::nullopt;
        case CastPolicy::Mode::low:
            break;
    }
    switch (cast) {
        case CastClass::low:
            return policy.low;
        case CastClass::fp32:
            return Dtype::f32;
        // O2 and O3 narrow mixed arithmetic instead of widening it: an activation once low stays low. Sums of FP32
        // values, such as losses, stay FP32.
        case CastClass::widest:
            return policy.level >= Level::O2 && any_of_dtype(inputs, policy.low) ? policy.low : widest(inputs);
        case CastClass::wide_inside:
        case CastClass::keep:
        case CastClass::refuse:
            break;
    }
    return std::nullopt;
}

Dtype result_target(const CastPolicy& policy, CastClass cast, std::span<const Tensor> inputs) {
    const Dtype given = inputs.front().dtype();
    if (!castable(inputs.front())) return given;
    // What feeds products is of their dtype; otherwise as the class says for inputs.
    if (cast == CastClass::wide_inside && policy.mode == CastPolicy::Mode::low) return policy.low;
    if (cast == CastClass::wide_inside) cast = CastClass::fp32;
    return cast_target(policy, cast, inputs).value_or(given);
}

void set_global_policy(std::string_view name) {
    global_precision() = Precision::parse(name);
}
Precision global_policy() {
    return global_precision();
}

}  // namespace invar
