// Layer norm and RMS norm of [rows, columns], with the residual sum before them. The mean is subtracted before anything
// is squared, so that a large mean costs no digits; sums of many values are taken in double.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/norm_types.cuh"

namespace invar::cuda {
namespace {

// A row of x, or of x + branch as its sum is rounded.
template <class Types, bool kBranch>
struct NormSource {
    using C = typename Types::C;
    static constexpr int kWidth = Types::kWidth;
    struct Alone {
        typename Types::XRaw x;
    };
    struct WithBranch {
        typename Types::XRaw x;
        typename Types::YRaw branch;
    };
    using Raw = std::conditional_t<kBranch, WithBranch, Alone>;
    Dense x, branch;
    Dtype sum;
    __device__ void read(std::int64_t at, Raw& raw) const {
        read_raw(x, at, raw.x);
        if constexpr (kBranch) read_raw(branch, at, raw.branch);
    }
    // Not static: single elements are rounded to a dtype that is known at run time.
    __device__ void unpack(const Raw& raw, C* values) const {
        unpack_raw(raw.x, values);
        if constexpr (kBranch) {
            C added[kWidth];
            unpack_raw(raw.branch, added);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) values[k] += added[k];
            round_as<typename Types::XRaw>(sum, values);
        }
    }
};

struct Forward {
    Dense sum, gamma, beta, y, mean, rstd;
    std::int64_t rows, n;
    double eps;
    double share;  // 1 / n: a division in double costs each thread as much as a pack
};

template <class Types, bool kBranch, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void norm_forward(const NormSource<Types, kBranch> x, const Forward p) {
    using C = typename Types::C;
    constexpr int kWidth = Types::kWidth;
    const std::int64_t r = first_row<kGroup>(), n = p.n;
    if (r >= p.rows) return;
    const Row<NormSource<Types, kBranch>, kGroup> row(x, r * n, n);
    const bool centered = p.mean.data != nullptr;
    double total = 0, center = 0;
    if (kBranch || centered) {
        row.each([&](std::int64_t i, C* v) {
            if constexpr (kBranch) write_raw<typename Types::XRaw>(v, p.sum, r * n + i);
            total += small_sum<kWidth>(v);
        });
    }
    if (centered) center = reduce<kGroup>(total, Add{}) * p.share;
    const C m = C(center);
    total = 0;
    row.each([&](std::int64_t, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = (v[k] - m) * (v[k] - m);
        total += small_sum<kWidth>(v);
    });
    const double inverse = rsqrt(variance_in<C>(reduce<kGroup>(total, Add{}) * p.share) + p.eps);
    const C s = C(inverse);
    row.each([&](std::int64_t i, C* v) {
        C a[kWidth], b[kWidth];
        parameters_at<Types>(p.gamma, i, C(1), a);
        parameters_at<Types>(p.beta, i, C(0), b);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = affine((v[k] - m) * s, a[k], b[k]);
        write_raw<typename Types::YRaw>(v, p.y, r * n + i);
    });
    if (threadIdx.x % kGroup != 0) return;
    if (centered) p.mean.put<double>(r, center);
    p.rstd.put<double>(r, inverse);
}

}  // namespace

void CudaKernels::norm(const NormForward& norm) {
    const Launch stream("norm");
    const std::int64_t rows = rows_of(norm.x), n = columns_of(norm.x);
    const Forward p{norm.sum, norm.gamma, norm.beta, norm.y, norm.mean, norm.rstd, rows, n, norm.eps, 1.0 / double(n)};
    if (rows == 0) return;
    with_norm_types(n, {&norm.x, &norm.sum}, {&norm.y, &norm.branch}, {&norm.gamma, &norm.beta}, [&](auto tag) {
        using Types = typename decltype(tag)::type;
        with_group<Types>(n, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            const auto run = [&](auto with_branch) {
                constexpr bool kBranch = decltype(with_branch)::value;
                const NormSource<Types, kBranch> x{norm.x, norm.branch, norm.sum.dtype};
                norm_forward<Types, kBranch, kGroup>
                    <<<grid_for(rows, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(x, p);
            };
            if (norm.branch)
                run(std::true_type{});
            else
                run(std::false_type{});
        });
    });
}

}  // namespace invar::cuda
