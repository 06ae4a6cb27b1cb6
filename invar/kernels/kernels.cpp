#include "invar/kernels/kernels.h"

#include "invar/kernels/pointwise.h"

namespace invar {

void Kernels::matmul_with(const Epilogue& e, const View& a, const View& b, const View& out, bool accumulate) {
    if (e.addend) {
        copy(e.addend, out);
        return matmul(a, b, {}, out, true);
    }
    const View& product = e.before ? e.before : out;
    matmul(a, b, e.bias, product, accumulate);
    if (e.activation != Activation::none) unary(unary_op(e.activation), product, out, {});
    if (!e.row_sums) return;
    View rows = a;  // a^T as it lies in memory
    rows.rank = 2;
    rows.size[0] = a.size[2], rows.size[1] = a.size[1];
    rows.stride[0] = a.size[1], rows.stride[1] = 1;
    sum({1, a.size[2], a.size[1]}, rows, e.row_sums, 1.0, accumulate);
}

void Kernels::cross_entropy_in_place(const CrossEntropySpec& spec, const View& logits, const View& target,
                                     const View& losses, const View& kept, const View& one) {
    cross_entropy(spec, logits, target, losses, kept);
    cross_entropy_backward(spec, logits, target, kept, one, {}, logits);
}

void Kernels::segment_stats(const View& gradients, std::span<const Segment> segments, StepState* states) {
    for (const Segment& segment : segments) {
        View part = gradients;
        part.data = gradients.as<float>() + segment.begin;
        part.size[0] = segment.count;
        grad_stats(part, states++, {});
    }
}

void Kernels::activation_backward(Activation activation, const View& gy, const View& saved, const View& gx,
                                  const View& gb, bool accumulate, const View& again) {
    if (again) unary(unary_op(activation), saved, again, {});
    unary_backward(unary_op(activation), gy, saved, gx, {});
    if (!gb) return;
    const std::int64_t columns = gb.numel();
    sum({1, columns > 0 ? gx.numel() / columns : 0, columns}, gx, gb, 1.0, accumulate);
}

}  // namespace invar
