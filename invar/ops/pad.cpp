#include "invar/ops/pad.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

constexpr const char* kModes[] = {"constant", "reflect", "replicate", "circular"};

// One direction: how much stands before and behind; less than nothing is cut off.
struct Border {
    std::int64_t in = 1, before = 0, behind = 0;
    std::int64_t out() const { return in + before + behind; }
    std::int64_t cut() const { return std::max<std::int64_t>(0, -before); }   // where what is kept begins in x ...
    std::int64_t begin() const { return std::max<std::int64_t>(0, before); }  // ... and in the result
    std::int64_t kept() const { return in - cut() - std::max<std::int64_t>(0, -behind); }
};

struct Pad {
    static constexpr const char* kName = "pad";
    static constexpr const char* kDoc = "images with a constant, or with themselves, around them";
    static constexpr CastClass kCast = CastClass::keep;
    std::int64_t batch, channels;
    Border rows, columns;
    PadMode mode;
    Number value;
    Shape from, to;

    Tensor forward(Context&, const Tensors& in) {
        const Tensor x = dense(in[0]);
        Kernels& kernels = kernels_for(x.device());
        Tensor y = Tensor::empty(to, x.dtype(), x.device());
        if (mode != PadMode::constant) {
            kernels.resample(spec(), x.view(), y.view());
            return y;
        }
        kernels.copy(expanded(constant(kName, value, x.dtype(), x.device()), to).view(), y.view());
        if (keeps_any()) kernels.copy(kept_of_input(x).view(), kept_of_result(y).view());
        return y;
    }
    Tensors backward(Context&, const Tensor& gradient) {
        const Tensor g = dense(gradient);
        Kernels& kernels = kernels_for(g.device());
        Tensor gx = Tensor::empty(from, g.dtype(), g.device());
        if (mode != PadMode::constant) {
            kernels.resample_backward(spec(), g.view(), gx.view());
            return {gx};
        }
        if (rows.kept() < rows.in || columns.kept() < columns.in) kernels.fill(gx.view(), 0);
        if (keeps_any()) kernels.copy(kept_of_result(g).view(), kept_of_input(gx).view());
        return {gx};
    }

  private:
    bool keeps_any() const { return rows.kept() > 0 && columns.kept() > 0; }
    // The pixels that both sides have, of a dense tensor.
    Tensor part(const Tensor& x, std::int64_t h, std::int64_t w, std::int64_t top, std::int64_t left) const {
        return x.as_strided((top * w + left) * channels, {batch, rows.kept(), columns.kept(), channels},
                            {h * w * channels, w * channels, channels, 1});
    }
    Tensor kept_of_input(const Tensor& x) const { return part(x, rows.in, columns.in, rows.cut(), columns.cut()); }
    Tensor kept_of_result(const Tensor& y) const {
        return part(y, rows.out(), columns.out(), rows.begin(), columns.begin());
    }
    ResampleSpec spec() const {
        ResampleSpec made{batch, rows.in, columns.in, channels, rows.out(), columns.out(), Sampling::reflect};
        if (mode == PadMode::replicate) made.mode = Sampling::replicate;
        if (mode == PadMode::circular) made.mode = Sampling::circular;
        made.top = rows.before, made.left = columns.before;
        return made;
    }
};

void check_border(const Tensor& x, const Border& border, PadMode mode) {
    if (border.out() < (mode == PadMode::constant ? 0 : 1))
        fail("pad: nothing is left of {} pixels of {} after ({}, {})", border.in, x.shape().str(), border.before,
             border.behind);
    if (mode == PadMode::constant) return;
    const std::int64_t least = std::min(border.before, border.behind), most = std::max(border.before, border.behind);
    if (least < 0) fail("pad: mode {} adds, and takes no {}; slice first", kModes[int(mode)], least);
    if ((mode == PadMode::reflect && most >= border.in) || (mode == PadMode::circular && most > border.in) ||
        border.in == 0)
        fail("pad: mode {} of {} needs more than {} pixels of {}", kModes[int(mode)], most, border.in, x.shape().str());
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& amounts, PadMode mode, Number value) {
    const std::size_t given = amounts.size();
    if ((given != 2 && given != 4) || x.rank() < (given == 2 ? 2 : 3))
        fail("pad: {} amounts for {}; takes left and right, top and bottom, of [..., height, width, channels]", given,
             x.str());
    if (mode != PadMode::constant && !is_floating(x.dtype()))
        fail("pad: mode {} needs a floating tensor, not {}", kModes[int(mode)], x.str());
    const bool both = given == 4;
    Pad op{1, x.size(-1), {}, {x.size(-2), amounts[0], amounts[1]}, mode, value, x.shape(), x.shape()};
    if (both) op.rows = {x.size(-3), amounts[2], amounts[3]};
    check_border(x, op.columns, mode);
    check_border(x, op.rows, mode);
    for (int i = 0; i < x.rank() - (both ? 3 : 2); ++i) op.batch *= x.size(i);
    op.to[-2] = op.columns.out();
    if (both) op.to[-3] = op.rows.out();
    return apply(op, {x});
}

}  // namespace invar::ops
