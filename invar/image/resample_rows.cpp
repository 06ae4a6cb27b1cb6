#include "invar/image/resample_rows.h"

#include <algorithm>

namespace invar {

namespace {

template <int kChannels>
void columns(const std::uint8_t* const* from, std::uint8_t* const* to, const FilterTable& table) {
    for (std::size_t row = 0; row < RowKernels::kGroup; ++row) {
        std::uint8_t* out = to[row];
        for (std::int64_t i = 0; i < table.size(); ++i) {
            const FilterTable::Run run = table.run(i);
            const std::uint8_t* pixels = from[row] + run.first * kChannels;
            std::int32_t sums[kChannels];
            for (std::int32_t& sum : sums) sum = FilterTable::kHalf;
            for (std::int64_t k = 0; k < run.count; ++k)
                for (int c = 0; c < kChannels; ++c) sums[c] += *pixels++ * run.weights[k];
            for (const std::int32_t sum : sums) *out++ = std::uint8_t(sum >> FilterTable::kBits);
        }
    }
}

void rows(const std::uint8_t* const* from, const FilterTable::Run& run, std::uint8_t* to, std::size_t count) {
    constexpr std::size_t kBlock = 64;
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
        const std::size_t width = std::min(kBlock, count - begin);
        std::int32_t sums[kBlock];
        for (std::int32_t& sum : sums) sum = FilterTable::kHalf;
        for (std::int64_t k = 0; k < run.count; ++k)
            for (std::size_t i = 0; i < width; ++i) sums[i] += from[k][begin + i] * run.weights[k];
        for (std::size_t i = 0; i < width; ++i) to[begin + i] = std::uint8_t(sums[i] >> FilterTable::kBits);
    }
}

}  // namespace

const RowKernels& plain_row_kernels() {
    static const RowKernels kernels{columns<3>, columns<1>, rows};
    return kernels;
}

const RowKernels& row_kernels() {
    static const RowKernels* const best = row_kernels_avx2() != nullptr ? row_kernels_avx2() : &plain_row_kernels();
    return *best;
}

}  // namespace invar
