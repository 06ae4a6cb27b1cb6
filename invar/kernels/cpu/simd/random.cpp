// Random numbers and dropout. Element i of a dense tensor takes number i of the reserved sequence, whatever the
// threads.
#include <cmath>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/iteration.h"

namespace invar::INVAR_ISA {

namespace {

// The raw numbers [4 * first, 4 * first + 4 * groups): lanes side by side, so that the compiler runs eight counters at
// once.
void draw(RngState rng, std::int64_t first, std::int64_t groups, std::uint32_t* out) {
#pragma omp simd
    for (std::int64_t i = 0; i < groups; ++i) {
        const Random4 random = philox(rng.seed, rng.offset + std::uint64_t(first + i));
        out[4 * i + 0] = random.v[0];
        out[4 * i + 1] = random.v[1];
        out[4 * i + 2] = random.v[2];
        out[4 * i + 3] = random.v[3];
    }
}

static_assert(kBlock % DropRule::kElements == 0);

// Calls f(first element, count, numbers) for blocks of a dense tensor of n elements.
template <class F>
void for_random_blocks(std::int64_t n, RngState rng, F&& f) {
    const std::int64_t blocks = (n + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (n > 4 * kBlock)
    for (std::int64_t block = 0; block < blocks; ++block) {
        alignas(64) std::uint32_t numbers[kBlock];
        const std::int64_t begin = block * kBlock, count = std::min(kBlock, n - begin);
        draw(rng, begin / 4, (count + 3) / 4, numbers);
        f(begin, count, numbers);
    }
}

}  // namespace

void CpuKernels::uniform(const View& out, double low, double high, RngState rng) {
    for_random_blocks(out.numel(), rng, [&](std::int64_t begin, std::int64_t n, const std::uint32_t* numbers) {
        alignas(64) double values[kBlock];
        for (std::int64_t i = 0; i < n; ++i) values[i] = low + (high - low) * double(to_unit(numbers[i]));
        store<double>(values, byte_at(out.data, out.dtype, begin), out.dtype, 1, n);
    });
}

// Box and Muller, two numbers in, two out.
void CpuKernels::normal(const View& out, double mean, double deviation, RngState rng) {
    for_random_blocks(out.numel(), rng, [&](std::int64_t begin, std::int64_t n, const std::uint32_t* numbers) {
        alignas(64) double values[kBlock];
        for (std::int64_t i = 0; i < n; i += 2) {
            const double radius = std::sqrt(-2.0 * std::log(1.0 - double(to_unit(numbers[i]))));
            const double angle = 6.28318530717958647693 * double(to_unit(numbers[i + 1]));
            values[i] = mean + deviation * radius * std::cos(angle);
            values[i + 1] = mean + deviation * radius * std::sin(angle);
        }
        store<double>(values, byte_at(out.data, out.dtype, begin), out.dtype, 1, n);
    });
}

void CpuKernels::dropout(const View& x, const View& y, double p, const ReservedNumbers& numbers) {
    const DropRule rule(p);
    const std::int64_t count = x.numel(), blocks = (count + kBlock - 1) / kBlock;
    const auto run = [&]<class C>(C) {
#pragma omp parallel for schedule(static) if (count > 4 * kBlock)
        for (std::int64_t block = 0; block < blocks; ++block) {
            const std::int64_t begin = block * kBlock, n = std::min(kBlock, count - begin);
            constexpr std::int64_t kDrawn = kBlock + DropRule::kElements;  // where the first ones are skipped
            alignas(64) std::uint32_t words[kDrawn / 2] = {};
            alignas(64) std::uint16_t drawn[kDrawn];
            draw(numbers.from, begin / DropRule::kElements,
                 (numbers.skip + n + DropRule::kElements - 1) / DropRule::kElements, words);
            for (std::int64_t i = 0; i < kDrawn / 2; ++i)
                drawn[2 * i] = std::uint16_t(words[i]), drawn[2 * i + 1] = std::uint16_t(words[i] >> 16);
            const std::uint16_t* const bits = drawn + numbers.skip;
            alignas(64) C in[kBlock], out[kBlock];
            const C* px = load<C>(byte_at(x.data, x.dtype, begin), x.dtype, 1, n, in);
            void* to = byte_at(y.data, y.dtype, begin);
            C* py = target<C>(to, y.dtype, 1, out);
            // A product also where it is dropped: NaN stays NaN.
            for (std::int64_t i = 0; i < n; ++i) py[i] = px[i] * (bits[i] < rule.limit ? C(0) : C(rule.keep));
            store<C>(py, to, y.dtype, 1, n);
        }
    };
    x.dtype == Dtype::f64 ? run(double{}) : run(float{});
}

}  // namespace invar::INVAR_ISA
