// Autocast: which precision an operation runs in, decided by its CastClass. Scoped, nestable, thread-local.
#pragma once

#include <optional>
#include <span>

#include "invar/amp/precision.h"
#include "invar/core/cast_class.h"
#include "invar/core/tensor.h"

namespace invar {

struct CastPolicy {
    enum class Mode : std::uint8_t { off, low, fp32 };
    Mode mode = Mode::off;
    Dtype low = Dtype::f16;
    Level level = Level::O1;
};

// Autocast cast;                     the region runs in the global policy's precision
// Autocast cast(precision);          the region runs in this precision
// Autocast cast(Dtype::bf16);        or by dtype, as in PyTorch
// Autocast off(Autocast::off());     no casts at all inside
// Autocast pin(Autocast::fp32());    everything inside runs in FP32
class Autocast {
  public:
    Autocast();
    explicit Autocast(const Precision& precision) : Autocast(policy_of(precision)) {}
    explicit Autocast(Dtype low, bool enabled = true, Level level = Level::O1);
    explicit Autocast(const CastPolicy& policy);
    ~Autocast();
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;

    static CastPolicy off() { return {}; }
    static CastPolicy fp32() { return {CastPolicy::Mode::fp32}; }
    static CastPolicy policy_of(const Precision& precision);
    static const CastPolicy& current();

  private:
    CastPolicy previous_;
};

// The dtype an op of this class must see its floating inputs in, or nothing where it takes them as they are.
std::optional<Dtype> cast_target(const CastPolicy& policy, CastClass cast, std::span<const Tensor> inputs);
// The dtype of the result of an op that is not cast for, because it widens what it reads by itself; the first input is
// its activation.
Dtype result_target(const CastPolicy& policy, CastClass cast, std::span<const Tensor> inputs);

// The policy that models start from when nothing else is said, by name, as in Keras ("mixed_float16"). Thread-local.
void set_global_policy(std::string_view name);
Precision global_policy();

}  // namespace invar
