// Convolutions as products of matrices. Those of 1 x 1 are products as they stand. For others the pixels under each
// result are gathered first, in pieces that stay in the cache: where libraries would pad few channels to many, where a
// stride leaves pixels out, and where windows lie side by side, so that no pixel is gathered twice.
#include <algorithm>

#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/kernels.h"
#include "invar/kernels/devices.h"

namespace invar::cuda {

namespace {

constexpr std::int64_t kPieceBytes = 64 << 20;

bool is_dot(const ConvSpec& s) {
    return s.k_h == 1 && s.k_w == 1 && s.pad_h == 0 && s.pad_w == 0 && s.groups == 1;
}
bool is_product(const ConvSpec& s) {
    return is_dot(s) && s.stride_h == 1 && s.stride_w == 1;
}
std::int64_t values_of(const ConvSpec& s) {
    return s.k_h * s.k_w * s.in_c;
}

std::int64_t results_of(const ConvSpec& s) {
    return s.batch * s.out_h * s.out_w;
}

bool gatherable(const ConvSpec& s, Dtype dtype) {
    const std::int64_t most = std::int64_t(1) << 30;
    const bool small = s.in_h * s.in_w < most / s.in_c && results_of(s) < 2 * most && values_of(s) <= 1 << 14;
    return s.groups == 1 && small && (is_sixteen_bit(dtype) || dtype == Dtype::f32);
}
// Windows of few channels, but of so many values that they are no work for conv_first.
bool has_few_channels(const ConvSpec& s, Dtype dtype) {
    return s.in_c % std::int64_t(16 / size_of(dtype)) != 0 && s.in_c < 32 && values_of(s) > 31 && values_of(s) <= 1024;
}

// [1, rows, columns] of dense memory, or that turned.
View matrix(void* data, Dtype dtype, std::int64_t rows, std::int64_t columns, bool turned = false) {
    View m;
    m.data = data;
    m.dtype = dtype;
    m.rank = 3;
    m.size[0] = 1, m.size[1] = turned ? columns : rows, m.size[2] = turned ? rows : columns;
    m.stride[0] = rows * columns, m.stride[1] = turned ? 1 : columns, m.stride[2] = turned ? columns : 1;
    return m;
}
View matrix(const View& v, std::int64_t columns, bool turned = false) {
    return matrix(v.data, v.dtype, v.numel() / columns, columns, turned);
}
// Some of its rows.
View rows_of(const View& v, std::int64_t columns, std::int64_t first, std::int64_t rows, bool turned = false) {
    auto* const data = static_cast<std::byte*>(v.data) + std::size_t(first * columns) * size_of(v.dtype);
    return matrix(data, v.dtype, rows, columns, turned);
}
// The first columns of a matrix [1, rows, columns].
View narrowed(View m, std::int64_t columns) {
    m.size[2] = columns;
    return m;
}

// Values of a patch in memory: whole packs of 16 bytes.
std::int64_t pitch_of(const ConvSpec& s, Dtype dtype) {
    const std::int64_t pack = std::int64_t(16 / size_of(dtype));
    return (values_of(s) + pack - 1) / pack * pack;
}

// f(first, patches) for all results in order; patches is [1, some, pitch].
template <class F>
void for_patches(const ConvSpec& s, const View& x, const F& f) {
    const std::int64_t pitch = pitch_of(s, x.dtype), total = results_of(s),
                       line = pitch * std::int64_t(size_of(x.dtype));
    const std::int64_t pieces = (total * line + kPieceBytes - 1) / kPieceBytes;
    const std::int64_t each = ((total + pieces - 1) / pieces + 7) / 8 * 8;
    const Scratch memory(std::size_t(std::min(each, total) * line));
    for (std::int64_t first = 0; first < total; first += each) {
        const std::int64_t rows = std::min(each, total - first);
        gather_patches(s, x, first, rows, memory.data());
        f(first, matrix(memory.data(), x.dtype, rows, pitch));
    }
}

}  // namespace

bool product_forward(const ConvSpec& s, const View& x, const View& w, const View& bias, const View& y) {
    if (s.in_c == 0) return false;
    Epilogue epilogue;
    epilogue.bias = bias;
    epilogue.activation = s.activation;
    if (is_product(s)) {
        kernels().matmul_with(epilogue, matrix(x, s.in_c), matrix(w, s.in_c, true), matrix(y, s.out_c), false);
        return true;
    }
    const bool worth_it = is_dot(s) || (is_sixteen_bit(x.dtype) && has_few_channels(s, x.dtype));
    if (!worth_it || !gatherable(s, x.dtype)) return false;
    const std::int64_t values = values_of(s), pitch = pitch_of(s, x.dtype);
    const Scratch wide(values == pitch ? 0 : std::size_t(s.out_c * pitch) * size_of(w.dtype));
    View weights = matrix(w, values);
    if (values != pitch) {
        weights = matrix(wide.data(), w.dtype, s.out_c, pitch);
        kernels().fill(weights, 0);
        kernels().copy(matrix(w, values), narrowed(weights, values));
    }
    for_patches(s, x, [&](std::int64_t first, const View& patches) {
        kernels().matmul_with(epilogue, patches, matrix(weights, pitch, true),
                              rows_of(y, s.out_c, first, patches.size[1]), false);
    });
    return true;
}

namespace {

// The vector that lies along the channels, `times` over.
View repeated(const View& along, std::int64_t times, const Scratch& memory) {
    const std::int64_t channels = along.size[along.rank - 1];
    View from = matrix(along.data, along.dtype, times, channels);
    from.stride[1] = 0;
    View to = matrix(memory.data(), along.dtype, times, channels);
    kernels().copy(from, to);
    to.rank = 1, to.size[0] = times * channels, to.stride[0] = 1;
    return to;
}

// Windows that tile the image: of each result the pixels in one row of its window lie side by side, and so do those of
// the results on one line. A product for each row of the window, of a batch of lines.
bool tiled_backward_data(const ConvSpec& s, const View& gy, const View& w, const View& gx, const View& pending) {
    const std::int64_t row = s.k_w * s.in_c, eight = 8, fewest = 32;
    const bool packs = row % eight == 0 && s.out_c % eight == 0 && s.out_w >= fewest;
    if (!is_sixteen_bit(gy.dtype) || !tiles_image(s) || !packs || (pending && !is_along_channels(pending)))
        return false;
    const Scratch memory(pending ? std::size_t(row) * size_of(gy.dtype) : 0);
    Epilogue epilogue;
    if (pending) epilogue.bias = repeated(pending, s.k_w, memory);
    const std::int64_t lines = s.batch * s.out_h;
    const auto batch = [&](const View& from, std::int64_t first, std::int64_t rows, std::int64_t columns,
                           std::int64_t apart, std::int64_t pitch) {
        View m = matrix(static_cast<std::byte*>(from.data) + std::size_t(first) * size_of(from.dtype), from.dtype, rows,
                        columns);
        m.size[0] = lines, m.stride[0] = apart, m.stride[1] = pitch;
        return m;
    };
    const View results = batch(gy, 0, s.out_w, s.out_c, s.out_w * s.out_c, s.out_c);
    for (std::int64_t h = 0; h < s.k_h; ++h)
        kernels().matmul_with(epilogue, results, batch(w, h * row, s.out_c, row, 0, s.k_h * row),
                              batch(gx, h * s.in_w * s.in_c, s.out_w, row, s.k_h * s.in_w * s.in_c, row), false);
    return true;
}

}  // namespace

bool product_backward_data(const ConvSpec& s, const View& gy, const View& w, const View& gx, const View& pending) {
    if (s.in_c == 0 || gy.numel() == 0) return false;
    if (!is_product(s)) return tiled_backward_data(s, gy, w, gx, pending);
    if (pending && !pending.contiguous()) return false;
    Epilogue epilogue;
    if (pending) epilogue.addend = matrix(pending, s.in_c);
    kernels().matmul_with(epilogue, matrix(gy, s.out_c), matrix(w, s.in_c), matrix(gx, s.in_c), false);
    return true;
}

bool product_backward_weights(const ConvSpec& s, const View& x, const View& gy, const View& gw, const View& gb,
                              bool accumulate) {
    if (s.in_c == 0 || gy.numel() == 0) return false;
    if (is_product(s)) {
        Epilogue epilogue;
        epilogue.row_sums = gb;
        kernels().matmul_with(epilogue, matrix(gy, s.out_c, true), matrix(x, s.in_c), matrix(gw, s.in_c), accumulate);
        return true;
    }
    const bool worth_it = is_dot(s) || lies_side_by_side(s) || has_few_channels(s, x.dtype);
    if (!worth_it || !gatherable(s, x.dtype)) return false;
    const std::int64_t values = values_of(s), pitch = pitch_of(s, x.dtype);
    const bool aside = values != pitch;
    const Scratch memory(aside ? std::size_t(s.out_c * pitch) * size_of(gw.dtype) : 0);
    const View sums = aside ? matrix(memory.data(), gw.dtype, s.out_c, pitch) : matrix(gw, values);
    for_patches(s, x, [&](std::int64_t first, const View& patches) {
        kernels().matmul(rows_of(gy, s.out_c, first, patches.size[1], true), patches, {}, sums,
                         first > 0 || (accumulate && !aside));
    });
    if (aside) {
        const View fresh = narrowed(sums, values), to = matrix(gw, values);
        accumulate ? kernels().add_into(fresh, to) : kernels().copy(fresh, to);
    }
    if (gb) kernels().sum({1, results_of(s), s.out_c}, gy, gb, 1.0, accumulate);
    return true;
}

}  // namespace invar::cuda
