// The inner loops of resample.cpp: rows through a table of columns, and sums of rows. Once for any CPU and once for
// AVX2; the pixels are the same. Only the files of resampling include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "invar/image/resample.h"

namespace invar {

struct RowKernels {
    static constexpr std::size_t kGroup = 4;
    // That many rows at once. A byte behind each source row may be read, none behind a row of the result written.
    void (*columns_rgb)(const std::uint8_t* const* from, std::uint8_t* const* to, const FilterTable& table);
    void (*columns_grey)(const std::uint8_t* const* from, std::uint8_t* const* to, const FilterTable& table);
    // `from` has a row for each weight of the run, all of `count` bytes.
    void (*rows)(const std::uint8_t* const* from, const FilterTable::Run& run, std::uint8_t* to, std::size_t count);
};

// The best for this CPU.
const RowKernels& row_kernels();

const RowKernels& plain_row_kernels();
// Nothing where this CPU, or this build, has no AVX2.
const RowKernels* row_kernels_avx2();

}  // namespace invar
