// Finding: the first operation of a step that gave NaN or Inf, what it was given, what FP32 makes of it, who is to
// blame, and the one line of configuration that mends it.
#pragma once

#include <string>
#include <vector>

#include "invar/diagnose/replay.h"
#include "invar/io/jsonl.h"
#include "invar/train/remedy.h"

namespace invar {

enum class Direction : std::uint8_t { forward, backward };
std::string_view name_of(Direction direction);

enum class Blame : std::uint8_t {
    precision,      // FP32 survives the whole step
    loss_scale,     // the same precision survives it at a smaller loss scale
    model,          // FP32 does not survive it either
    data,           // the batch itself is not finite
    weights,        // the weights were not finite before the step
    learning_rate,  // from before the trouble on FP32 goes astray too, and more slowly it does not
};
std::string_view name_of(Blame blame);

// The values of a tensor at a glance.
struct Range {
    std::string what;                      // "input 0", "fc1.weight", "incoming gradient"
    std::string type;                      // "f16[16, 12]"
    double smallest = 0.0, largest = 0.0;  // magnitudes of finite values, zeros left out
    std::int64_t values = 0, zeros = 0, infinities = 0, nans = 0;
    bool finite() const { return infinities + nans == 0; }
    std::string str() const;
};
Range range_of(const std::string& what, const Tensor& tensor);

struct Finding {
    bool found = false;
    explicit operator bool() const { return found; }

    Direction direction = Direction::forward;
    std::string module;  // "" is the model itself, "loss" the loss
    std::string op;
    Dtype dtype = Dtype::f32;   // of what came out bad
    std::vector<Range> inputs;  // of the op; backward: with the incoming gradient
    Range result;

    double scale = 1.0;        // of the loss in this step
    bool op_tried = false;     // whether this op was run again in FP32, on the same inputs
    bool op_finite = false;    // what came of that
    double op_largest = 0.0;   // what it then gives at most
    bool step_finite = false;  // the whole step in FP32 from the same state

    Blame blame = Blame::model;
    std::string explanation;  // sentences
    Remedy remedy;            // what should mend it
    bool verified = false;    // the step was replayed with the remedy and was finite; with a rate, all up to it

    // How the remedy was tried: "(replayed with it, the step is finite)"; "" where it was not.
    std::string remedy_tried() const;
    // "linear in fc1, forward"
    std::string where() const;
    // "in FP32: this operation is finite, the whole step is finite"
    std::string in_fp32() const;
    JsonLine json() const;
    // Some lines of text without colours.
    std::string text() const;
};

}  // namespace invar
