#include "invar/ops/rotary.h"

#include <cmath>
#include <numbers>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/indexing.h"
#include "invar/ops/shape_tools.h"
#include "invar/ops/to.h"

namespace invar::ops {

namespace {

struct Rotary {
    static constexpr const char* kName = "rotary";
    static constexpr const char* kDoc = "queries and keys turned by their positions; values copied";
    static constexpr CastClass kCast = CastClass::keep;
    RotarySpec spec;
    Tensor table, positions;

    Tensor turned(const Tensor& x, bool back) const {
        RotarySpec s = spec;
        s.back = back;
        Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
        kernels_for(x.device()).rotary(s, dense(x).view(), table.view(), view_of(positions), y.view());
        return y;
    }
    Tensor forward(Context&, const Tensors& in) { return turned(in[0], false); }
    // What turns by the opposite angle is the transpose, whatever the rounding of the table.
    Tensors backward(Context&, const Tensor& g) { return {turned(g, true)}; }
};

}  // namespace

std::vector<double> rotary_speeds(std::int64_t width, const RotarySpeeds& options) {
    if (width < 2 || width % 2 != 0) fail("rotary_speeds: a width of {}; it must be even and at least 2", width);
    if (!(options.base > 0 && options.factor > 0))
        fail<UsageError>("rotary_speeds: base {} and factor {}; both must be above 0", options.base, options.factor);
    const bool llama3 = options.scaling == RotarySpeeds::Scaling::llama3;
    if (llama3 && !(options.high_freq_factor > options.low_freq_factor))
        fail<UsageError>("rotary_speeds: high_freq_factor {} must be above low_freq_factor {}",
                         options.high_freq_factor, options.low_freq_factor);
    std::vector<double> speeds;
    for (std::int64_t i = 0; i < width; i += 2) {
        const double speed = std::pow(options.base, -double(i) / double(width)), slow = speed / options.factor;
        // Turns in the original length: a pair that makes many is left alone, one that makes few is slowed down.
        const double turns = options.original_length * speed / (2 * std::numbers::pi);
        const double kept = (turns - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor);
        const double share = std::fmin(std::fmax(kept, 0.0), 1.0);
        if (options.scaling == RotarySpeeds::Scaling::none)
            speeds.push_back(speed);
        else
            speeds.push_back(llama3 ? share * speed + (1 - share) * slow : slow);
    }
    return speeds;
}

Tensor rotary_table(std::int64_t positions, const std::vector<double>& speeds, Dtype dtype, Device device) {
    if (positions < 0 || !is_floating(dtype))
        fail("rotary_table: {} positions in {}; there must be at least 0, in a floating dtype", positions,
             name_of(dtype));
    std::vector<double> values;
    values.reserve(std::size_t(positions) * 2 * speeds.size());
    for (std::int64_t at = 0; at < positions; ++at) {
        for (const double speed : speeds) values.push_back(std::cos(double(at) * speed));
        for (const double speed : speeds) values.push_back(std::sin(double(at) * speed));
    }
    return to(Tensor::from(values, {positions, std::int64_t(2 * speeds.size())}, dtype), device);
}

Tensor rotary(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, const Tensor& table,
              const RotaryPositions& at) {
    constexpr const char* kOp = Rotary::kName;
    const std::int64_t all = heads + 2 * kv_heads;
    if (qkv.rank() != 3 || !is_floating(qkv.dtype()) || heads < 1 || kv_heads < 0 || qkv.size(2) % all != 0)
        fail("{}: {} is not a floating [batch, length, ({} + 2 x {}) * width]", kOp, qkv.str(), heads, kv_heads);
    const std::int64_t width = qkv.size(2) / all, length = qkv.size(1);
    if (table.rank() != 2 || !is_floating(table.dtype()) || table.size(1) % 2 != 0 || table.size(1) > width)
        fail("{}: a table {} for heads of width {}; it must be a floating [positions, even and at most {}]", kOp,
             table.str(), width, width);
    if (table.requires_grad() && GradMode::recording())
        fail<UsageError>("{}: the table gets no gradient; detach() it", kOp);
    for (const Tensor& other : {table, at.positions})
        if (other && other.device() != qkv.device())
            fail("{}: inputs on {} and {}; move them to one device", kOp, qkv.device().str(), other.device().str());
    if (at.positions) {
        if (at.positions.shape() != Shape{length} && at.positions.shape() != Shape{qkv.size(0), length})
            fail("{}: positions {} for {}; they must be [length] or [batch, length]", kOp, at.positions.shape().str(),
                 qkv.shape().str());
        check_indices(kOp, at.positions, table.size(0) - at.offset);
    } else if (at.offset < 0 || at.offset + length > table.size(0)) {
        fail("{}: positions {} to {} of a table that has {}", kOp, at.offset, at.offset + length, table.size(0));
    }
    const RotarySpec spec{qkv.size(0) * length, all, heads + kv_heads, width, table.size(1), length, at.offset, false};
    return apply(Rotary{spec, dense(table), at.positions ? dense(at.positions) : at.positions}, {qkv});
}

}  // namespace invar::ops
