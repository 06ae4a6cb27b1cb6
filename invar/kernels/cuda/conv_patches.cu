// The pixels under each result of a convolution, side by side, with zeros around the image and up to whole packs of 16
// bytes. Channels that come in packs are moved as packs, others one by one.
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/division.cuh"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

namespace {

struct Geometry {
    int in_h, in_w, in_c, out_h, out_w, k_w;  // channels in units
    int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int values, packs;  // of a patch
    int rows_each;      // patches of a block
    Division by_image, by_row;
};

// A thread stays with one pack of the patches, and knows where its units lie behind a window's first pixel.
template <class Unit, int kUnits>
__global__ __launch_bounds__(kThreads) void gather(const Geometry s, const Unit* x, const int first, const int rows,
                                                   Unit* patches) {
    struct alignas(sizeof(Unit) * kUnits) Pack {
        Unit v[kUnits];
    };
    constexpr int kNowhere = 1 << 29, kAtOnce = 2;
    const int across = min(s.packs, kThreads), together = kThreads / across, mine = int(threadIdx.x) / across;
    if (mine >= together) return;
    const int begin = int(blockIdx.x) * s.rows_each, end = min(rows, begin + s.rows_each);
    for (int pack = int(threadIdx.x) % across; pack < s.packs; pack += across) {
        int down[kUnits], right[kUnits], at[kUnits];
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
            const int n = pack * kUnits + u, tap = n / s.in_c, r = tap / s.k_w, c = tap - r * s.k_w;
            down[u] = n < s.values ? r * s.dilation_h : kNowhere;
            right[u] = c * s.dilation_w;
            at[u] = (r * s.dilation_h * s.in_w + right[u]) * s.in_c + n - tap * s.in_c;
        }
        for (int row = begin + mine; row < end; row += kAtOnce * together) {
            Pack made[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const int place = first + min(row + i * together, end - 1);
                const int image = s.by_image.of(place), in_image = place - image * s.out_h * s.out_w;
                const int h = s.by_row.of(in_image), w = in_image - h * s.out_w;
                const int top = h * s.stride_h - s.pad_h, left = w * s.stride_w - s.pad_w;
                const Unit* const from = x + ((std::int64_t(image) * s.in_h + top) * s.in_w + left) * s.in_c;
#pragma unroll
                for (int u = 0; u < kUnits; ++u) {
                    const bool inside =
                        unsigned(top + down[u]) < unsigned(s.in_h) && unsigned(left + right[u]) < unsigned(s.in_w);
                    made[i].v[u] = inside ? from[at[u]] : Unit{};
                }
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                if (row + i * together < end)
                    reinterpret_cast<Pack*>(patches)[std::int64_t(row + i * together) * s.packs + pack] = made[i];
        }
    }
}

template <class Unit, int kUnits>
void launch(Geometry s, const View& x, std::int64_t first, std::int64_t rows, void* patches) {
    s.packs = (s.values + kUnits - 1) / kUnits;
    const int together = kThreads / std::min(s.packs, kThreads);
    s.rows_each = 8 * together;
    const auto blocks = unsigned((rows + s.rows_each - 1) / s.rows_each);
    gather<Unit, kUnits>
        <<<blocks, kThreads, 0, stream()>>>(s, x.as<const Unit>(), int(first), int(rows), static_cast<Unit*>(patches));
}

}  // namespace

void gather_patches(const ConvSpec& c, const View& x, std::int64_t first, std::int64_t rows, void* patches) {
    const int width = int(size_of(x.dtype)), units = 16 / width;  // elements of a pack
    const bool whole = c.in_c % units == 0;
    const int channels = int(whole ? c.in_c / units : c.in_c);
    const Geometry s{int(c.in_h),
                     int(c.in_w),
                     channels,
                     int(c.out_h),
                     int(c.out_w),
                     int(c.k_w),
                     int(c.stride_h),
                     int(c.stride_w),
                     int(c.pad_h),
                     int(c.pad_w),
                     int(c.dilation_h),
                     int(c.dilation_w),
                     int(c.k_h * c.k_w) * channels,
                     0,
                     0,
                     Division(c.out_h * c.out_w),
                     Division(c.out_w)};
    if (whole)
        launch<uint4, 1>(s, x, first, rows, patches);
    else if (width == 2)
        launch<std::uint16_t, 8>(s, x, first, rows, patches);
    else
        launch<std::uint32_t, 4>(s, x, first, rows, patches);
}

}  // namespace invar::cuda
