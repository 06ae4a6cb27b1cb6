// Precision: in which number formats a run computes and keeps its weights, by every name people use for it.
// A kind says which formats; a level (as in Apex) says how far a mixed kind goes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "invar/core/device.h"
#include "invar/core/dtype.h"

namespace invar {

// O0: nothing is cast. O1: each op by its cast class. O2: all but the most sensitive ops low. O3: as O2, and the
// weights are kept in 16 bits alone.
enum class Level : std::uint8_t { O0, O1, O2, O3 };
std::string_view name_of(Level level);

struct Precision {
    enum class Kind : std::uint8_t { fp32, tf32, fp16_mixed, bf16_mixed, fp16_true, bf16_true };
    Kind kind = Kind::fp32;
    Level level = Level::O0;

    // Lightning's, Accelerate's, NeMo's, Keras' and PyTorch's spellings, in any case; "O2" alone means what Apex
    // means by it. Sixteen bits without a further word means mixed. Throws UsageError, also for FP8: nothing trains in
    // it yet.
    static Precision parse(std::string_view text);
    // "O1", "o1" or "1". Throws UsageError.
    static Level parse_level(std::string_view text);
    // The six canonical names.
    static std::span<const std::string> names();

    // The same formats at another level. O0 casts nothing, so that 16 bits at it are FP32, in name and deed; O3
    // of a mixed kind is the `true` kind, and a lower level of a `true` kind the mixed one. FP32 and TF32 have one
    // level.
    Precision with_level(Level level) const;

    std::string name() const;     // canonical, Lightning's: 32-true tf32 16-mixed bf16-mixed 16-true bf16-true
    Dtype compute_dtype() const;  // what low-precision ops run in; f32 at O0
    bool mixed() const;           // FP32 weights beside low-precision compute
    bool autocasts() const { return mixed() && level != Level::O0; }
    bool needs_scaler() const { return kind == Kind::fp16_mixed; }
    bool has_masters() const { return autocasts(); }  // FP32 masters beside low-precision shadows

    // Throws UsageError when the device lacks this precision, saying what to use instead.
    void require(Device device) const;

    bool operator==(const Precision&) const = default;
};

}  // namespace invar
