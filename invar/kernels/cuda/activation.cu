// The gradient of an activation together with that of the bias before it, and with its result again where that was not
// kept: one pass over what a layer hands back.
#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/columns.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {
namespace {

// What an op hands back and its result, in as many digits as the tensors keep: with more, arithmetic and not memory
// would be the limit.
template <class Op, class T>
struct Both {
    T gradient, result;
    __device__ Both(T g, T x) : gradient(Op::backward(g, x, Scalars{})), result(Op::forward(x, Scalars{})) {}
};
// One exponential for the two. What is left of 1 has lost digits here that 16 bits do not have.
template <>
struct Both<pointwise::GeluTanh, Brief> {
    Brief gradient, result;
    __device__ Both(Brief g, Brief x) {
        using Op = pointwise::GeluTanh;
        const Brief of = pointwise::logistic(Op::twice_inner(x)), bend = x * of * (Brief(1) - of);
        gradient = g * pointwise::select(bend == Brief(0), of, of + bend * Op::inner_slope(x));
        result = x * of;
    }
};

template <class Source, class Op>
struct Passed {
    using C = typename Source::C;
    struct Raw {
        typename Source::Raw g, saved;
        std::int64_t at;
    };
    struct Local {};
    static constexpr int kWidth = Source::kWidth, kKinds = 1;
    static constexpr bool kShifted = false;
    Source gy, saved;
    Dense gx, again;
    std::int64_t columns;
    __device__ void prepare(std::int64_t, Local&) const {}
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const {
        raw.at = row * columns + column;
        gy.read(raw.at, raw.g);
        saved.read(raw.at, raw.saved);
    }
    __device__ void add(const Raw& raw, const Local&, C (*sums)[kWidth]) const {
        using T = std::conditional_t<kWidth == 8, Brief, C>;
        C g[kWidth], s[kWidth];
        Source::unpack(raw.g, g);
        Source::unpack(raw.saved, s);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            const Both<Op, T> both{T(g[i]), T(s[i])};
            g[i] = C(both.gradient), s[i] = C(both.result);
        }
        Source::store(g, gx, raw.at);
        if (again.data != nullptr) Source::store(s, again, raw.at);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[0][i] += g[i];
    }
};

struct Put {
    Dense gb;
    bool accumulate;
    __device__ void operator()(std::int64_t, std::int64_t column, const double* sums) const {
        gb.put<double>(column, accumulate ? gb.get<double>(column) + sums[0] : sums[0]);
    }
};

}  // namespace

static std::size_t activation_backward_scratch_bytes(const View& gy, const View& gb) {
    const std::int64_t columns = gb.numel();
    return columns > 0 ? ColumnPlan::scratch_bytes(1, gy.numel() / columns, columns, 1) : 0;
}

void CudaKernels::activation_backward(Activation activation, const View& gy, const View& saved, const View& gx,
                                      const View& gb, bool accumulate, const View& again) {
    if (!gb) return Kernels::activation_backward(activation, gy, saved, gx, gb, accumulate, again);
    const Launch stream("activation_backward");
    const Scratch memory(activation_backward_scratch_bytes(gy, gb));
    void* const scratch = memory.data();
    const std::int64_t columns = gb.numel();
    if (columns == 0) return;
    with_source(columns, {&gy, &saved, &gx, &again}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        // Rows that do not come in packs may do in the pass that made the result: it is left to that one.
        constexpr bool kPacked = Source::kWidth > 1;
        if (again && !kPacked) unary(unary_op(activation), saved, again, {});
        const auto launch = [&](auto op) {
            const Passed<Source, decltype(op)> term{Source(gy), Source(saved), Dense(gx),
                                                    kPacked ? Dense(again) : Dense(View{}), columns};
            launch_columns(term, Put{Dense(gb), accumulate}, 1, gy.numel() / columns, columns, scratch, stream);
        };
        if (activation == Activation::relu)
            launch(pointwise::Relu{});
        else if (activation == Activation::gelu)
            launch(pointwise::Gelu{});
        else
            launch(pointwise::GeluTanh{});
    });
}

}  // namespace invar::cuda
