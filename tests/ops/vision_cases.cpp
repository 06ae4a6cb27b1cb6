#include <limits>

#include "invar/ops/ops.h"
#include "tests/ops/case_tables.h"

namespace invar::testing {

namespace {

using namespace invar::ops;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Each with few channels, and with as many as kernels of 16 bits take at once.
void add_windows(std::vector<OpCase>& all) {
    const auto pool = [&](const char* name, std::int64_t h, std::int64_t w, Tensor (*run)(const Tensor&)) {
        for (const std::int64_t channels : {2, 8})
            all.push_back({fmt::format("{}_{}", name, channels),
                           [run](const Tensors& in) { return run(in[0]); },
                           {{{2, h, w, channels}}},
                           2,
                           2});
    };
    pool("max_pool2d/ceil", 6, 5, [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {3, 2}, .stride = 2, .padding = {1, 0}, .ceil_mode = true});
    });
    pool("max_pool2d/ceil_relu", 5, 5, [](const Tensor& x) {
        return max_pool2d(x, {.kernel = 2, .activation = Activation::relu, .ceil_mode = true});
    });
    pool("avg_pool2d/ceil", 6, 5, [](const Tensor& x) {
        return avg_pool2d(x, {.kernel = {3, 2}, .stride = 2, .padding = 1, .ceil_mode = true});
    });
    pool("avg_pool2d/pixels_alone", 6, 5, [](const Tensor& x) {
        return avg_pool2d(x, {.kernel = 3, .stride = {2, 1}, .padding = 1, .count_include_pad = false});
    });
    pool("avg_pool2d/ceil_pixels_alone", 5, 7, [](const Tensor& x) {
        return avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
    });
    pool("avg_pool2d/tiles", 4, 6, [](const Tensor& x) { return avg_pool2d(x, {.kernel = {2, 3}}); });
    pool("avg_pool2d/quarters", 4, 6, [](const Tensor& x) { return avg_pool2d(x, {}); });
    pool("avg_pool2d/every_pixel", 4, 5, [](const Tensor& x) {
        return avg_pool2d(x, {.kernel = {3, 4}, .stride = 1, .padding = {1, 2}});
    });

    const auto resize = [&](const char* name, Tensor (*run)(const Tensor&)) {
        pool(fmt::format("upsample/{}", name).c_str(), 3, 5, run);
    };
    resize("bicubic", [](const Tensor& x) { return upsample(x, Pair{7, 8}, Interpolation::bicubic); });
    resize("bicubic_corners", [](const Tensor& x) { return upsample(x, Pair{7, 4}, Interpolation::bicubic, true); });
    resize("bicubic_smaller", [](const Tensor& x) { return upsample(x, Pair{2, 3}, Interpolation::bicubic); });
    resize("bicubic_factors", [](const Tensor& x) { return upsample(x, 1.7, 2.0, Interpolation::bicubic); });
    resize("bicubic_same", [](const Tensor& x) { return upsample(x, Pair{3, 5}, Interpolation::bicubic); });
    resize("exact", [](const Tensor& x) { return upsample(x, Pair{7, 3}, Interpolation::nearest_exact); });
    resize("exact_factors", [](const Tensor& x) { return upsample(x, 2.5, 0.7, Interpolation::nearest_exact); });
    resize("two_factors", [](const Tensor& x) { return upsample(x, 2.0, 1.3); });
    resize("bilinear_factors", [](const Tensor& x) { return upsample(x, 0.7, 1.6, Interpolation::bilinear); });

    pool("pad/constant", 3, 4, [](const Tensor& x) { return pad(x, {1, 2, 0, 3}, PadMode::constant, 0.5); });
    pool("pad/cut", 4, 5, [](const Tensor& x) { return pad(x, {-1, 2, 1, -2}); });
    pool("pad/width", 3, 4, [](const Tensor& x) { return pad(x, {2, 1}); });
    pool("pad/reflect", 3, 4, [](const Tensor& x) { return pad(x, {3, 2, 1, 2}, PadMode::reflect); });
    pool("pad/replicate", 3, 2, [](const Tensor& x) { return pad(x, {3, 0, 1, 5}, PadMode::replicate); });
    pool("pad/circular", 3, 4, [](const Tensor& x) { return pad(x, {4, 4, 1, 2}, PadMode::circular); });
    all.push_back({"pad/row", [](const Tensors& in) { return pad(in[0], {2, 1}, PadMode::reflect); }, {{{2, 4, 3}}}});
}

void add_convolutions(std::vector<OpCase>& all) {
    const auto conv = [&](const char* name, const Shape& x, const Shape& w, Conv2dOptions options) {
        all.push_back({name,
                       [options](const Tensors& in) { return conv2d(in[0], in[1], in[2], options); },
                       {{x}, {w}, {{w[0]}}},
                       3,
                       3});
    };
    conv("conv2d/same", {1, 5, 4, 2}, {3, 3, 5, 2}, {.padding = "same"});
    conv("conv2d/same_even", {1, 5, 4, 2}, {3, 2, 4, 2}, {.padding = "same"});
    conv("conv2d/same_one_even", {2, 5, 6, 8}, {8, 4, 3, 8}, {.padding = "same", .dilation = {1, 2}});
    conv("conv2d/valid", {1, 5, 4, 2}, {3, 2, 3, 2}, {.padding = "valid"});
    const auto line = [&](const char* name, const Shape& x, const Shape& w, Conv1dOptions options) {
        all.push_back({name,
                       [options](const Tensors& in) { return conv1d(in[0], in[1], in[2], options); },
                       {{x}, {w}, {{w[0]}}},
                       3,
                       3});
    };
    line("conv2d/line", {2, 7, 3}, {4, 3, 3}, {});
    line("conv2d/line_all", {2, 9, 4}, {6, 3, 2}, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
    line("conv2d/line_same", {1, 6, 8}, {8, 4, 8}, {.padding = "same", .activation = Activation::none});
}

void add_reductions(std::vector<OpCase>& all) {
    const auto one = [&](const char* name, Tensor (*run)(const Tensor&), double terms = 4, double gradient_terms = 4) {
        all.push_back({name, [run](const Tensors& in) { return run(in[0]); }, {{{2, 3, 4}}}, terms, gradient_terms});
    };
    one("std/all", [](const Tensor& x) { return std(x); });
    one("std/middle", [](const Tensor& x) { return std(x, {1}, false, true); });
    one("std/two", [](const Tensor& x) { return std(x, {0, 2}); });
    one("prod/middle", [](const Tensor& x) { return prod(x, 1); });
    one("prod/last", [](const Tensor& x) { return prod(x, -1, true); });
    one("prod/all", [](const Tensor& x) { return prod(x); });
    one("amax/all", [](const Tensor& x) { return amax(x); });
    one("amax/outer", [](const Tensor& x) { return amax(x, {0, -1}); });
    one("amin/middle", [](const Tensor& x) { return amin(x, {1}, true); });
    one("norm/sum", [](const Tensor& x) { return norm(x, 1, {1, 2}); });
    one("norm/root", [](const Tensor& x) { return norm(x); });
    one("norm/root_of_columns", [](const Tensor& x) { return norm(x, 2, {0}, true); });
    one("norm/largest", [](const Tensor& x) { return norm(x, kInfinity, {0, 2}); });
    all.push_back({"prod/long", [](const Tensors& in) { return prod(in[0], 1); }, {{{2, 40}, 0.5, 1.5}}, 4, 4});
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
        all.push_back(
            {fmt::format("bce_with_logits/pos_weight{}", int(reduction)),
             [=](const Tensors& in) {
                 const Tensor weight = to(Tensor::from(std::vector<double>{0.5, 2, 1, 7}, {4}), case_device());
                 return bce_with_logits(in[0], in[1], reduction, weight);
             },
             {{{3, 4}}, {{3, 4}, 0, 1}},
             4,
             4});
}

}  // namespace

void add_vision(std::vector<OpCase>& all) {
    add_windows(all);
    add_convolutions(all);
    add_reductions(all);
}

}  // namespace invar::testing
