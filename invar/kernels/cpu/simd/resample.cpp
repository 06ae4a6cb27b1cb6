// Images [batch, h, w, channels] in another size, or padded by themselves. Backward gathers: each input position
// collects from the outputs that read it, so that every gradient is written once and in a fixed order.
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

using Taps = ResampleSpec::Taps;

// An output position that reads an input position, and how much of it.
struct Reader {
    std::int64_t output;
    double weight;
};

template <class TapsOf>
std::vector<std::vector<Reader>> readers(std::int64_t in, std::int64_t out, const TapsOf& taps_of) {
    std::vector<std::vector<Reader>> result{std::size_t(in)};
    for (std::int64_t o = 0; o < out; ++o) {
        const Taps t = taps_of(o);
        for (int i = 0; i < ResampleSpec::kMostTaps; ++i)
            if (t.weight[i] != 0) result[std::size_t(t.at[i])].push_back({o, t.weight[i]});
    }
    return result;
}

template <class C>
void add_scaled(const C* __restrict v, C factor, C* __restrict sum, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) sum[c] += v[c] * factor;
}

}  // namespace

void CpuKernels::resample(const ResampleSpec& spec, const View& x, const View& y) {
    const std::int64_t channels = spec.channels;
    const int taps = spec.taps();
    std::vector<Taps> columns;
    for (std::int64_t ow = 0; ow < spec.out_w; ++ow) columns.push_back(spec.column(ow));
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        const std::int64_t outputs = spec.batch * spec.out_h * spec.out_w * channels;
        parallel_for(spec.batch * spec.out_h, outputs, [&](std::int64_t row) {
            const std::int64_t plane = row / spec.out_h * spec.in_h * spec.in_w;
            const Taps r = spec.row(row % spec.out_h);
            C loaded[kBlock], buffer[kBlock];
            for (std::int64_t ow = 0; ow < spec.out_w; ++ow) {
                const Taps& c = columns[std::size_t(ow)];
                for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
                    const std::int64_t n = std::min(kBlock, channels - begin);
                    void* out = byte_at(y.data, y.dtype, (row * spec.out_w + ow) * channels + begin);
                    C* sum = target(out, y.dtype, 1, buffer);
                    std::fill_n(sum, n, C(0));
                    for (int i = 0; i < taps; ++i)
                        for (int j = 0; j < taps; ++j) {
                            if (r.weight[i] == 0 || c.weight[j] == 0) continue;
                            const std::int64_t at = (plane + r.at[i] * spec.in_w + c.at[j]) * channels + begin;
                            add_scaled(load(byte_at(x.data, x.dtype, at), x.dtype, 1, n, loaded),
                                       C(r.weight[i] * c.weight[j]), sum, n);
                        }
                    store(sum, out, y.dtype, 1, n);
                }
            }
        });
    });
}

void CpuKernels::resample_backward(const ResampleSpec& spec, const View& gy, const View& gx) {
    const std::int64_t channels = spec.channels;
    const auto rows = readers(spec.in_h, spec.out_h, [&](std::int64_t i) { return spec.row(i); });
    const auto columns = readers(spec.in_w, spec.out_w, [&](std::int64_t i) { return spec.column(i); });
    compute_as(gx.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        const std::int64_t outputs = spec.batch * spec.out_h * spec.out_w * channels;
        parallel_for(spec.batch * spec.in_h, outputs, [&](std::int64_t row) {
            const std::int64_t plane = row / spec.in_h * spec.out_h * spec.out_w;
            C loaded[kBlock], buffer[kBlock];
            for (std::int64_t w = 0; w < spec.in_w; ++w) {
                for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
                    const std::int64_t n = std::min(kBlock, channels - begin);
                    void* out = byte_at(gx.data, gx.dtype, (row * spec.in_w + w) * channels + begin);
                    C* sum = target(out, gx.dtype, 1, buffer);
                    std::fill_n(sum, n, C(0));
                    for (const Reader& r : rows[std::size_t(row % spec.in_h)])
                        for (const Reader& c : columns[std::size_t(w)]) {
                            const std::int64_t at = (plane + r.output * spec.out_w + c.output) * channels + begin;
                            add_scaled(load(byte_at(gy.data, gy.dtype, at), gy.dtype, 1, n, loaded),
                                       C(r.weight * c.weight), sum, n);
                        }
                    store(sum, out, gx.dtype, 1, n);
                }
            }
        });
    });
}

}  // namespace invar::INVAR_ISA
