// Exact answers of reductions, padding and activations: whole numbers, and gradients at kinks, ties and zeros.
#include <limits>

#include "invar/ops/ops.h"
#include "tests/ops/value_cases.h"

namespace invar::testing {

namespace {

using namespace invar::ops;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLarge = std::int64_t(1) << 53;

Tensor leaf(const std::vector<double>& values, const Shape& shape, Dtype dtype = Dtype::f32) {
    return to(Tensor::from(values, shape, dtype), case_device()).set_requires_grad();
}
Tensor whole(const std::vector<std::int64_t>& values, const Shape& shape, Dtype dtype = Dtype::i64) {
    return to(Tensor::from(values, shape, dtype), case_device());
}

// The gradient of a vector, from ones.
void add_gradient(std::vector<ValueCase>& all, const char* name, const std::vector<double>& x,
                  Tensor (*run)(const Tensor&), const std::vector<double>& expected) {
    const Shape shape{std::int64_t(x.size())};
    all.push_back({name,
                   [=] {
                       const Tensor leaf_x = leaf(x, shape);
                       const Tensor y = run(leaf_x);
                       backward(y, ones(y.shape(), y.dtype(), y.device()));
                       return leaf_x.grad();
                   },
                   Dtype::f32, shape, expected});
}

void add_gradients(std::vector<ValueCase>& all) {
    add_gradient(all, "leaky_relu/kink", {-1, -0.0, 0, 1, kNan}, [](const Tensor& x) { return leaky_relu(x, 0.25); },
                 {0.25, 0.25, 0.25, 1, 1});
    add_gradient(all, "leaky_relu/default", {-kInf, 3}, [](const Tensor& x) { return leaky_relu(x); },
                 {double(0.01f), 1});
    add_gradient(all, "elu/kink", {-kInf, 0, 1, kNan}, [](const Tensor& x) { return elu(x, 0.5); }, {0, 0.5, 1, 1});
    add_gradient(all, "hardsigmoid/kinks", {-4, -3, 3, kInf}, [](const Tensor& x) { return hardsigmoid(x) * 6.0; },
                 {0, 0, 0, 0});
    add_gradient(all, "hardswish/kinks", {-4, -3, -1.5, 0, 1.5, 3, 4}, [](const Tensor& x) { return hardswish(x); },
                 {0, 0, 0, 0.5, 1, 1, 1});
    add_gradient(all, "prod/no_zero", {2, 3, -4}, [](const Tensor& x) { return prod(x); }, {-12, -8, 6});
    add_gradient(all, "prod/one_zero", {2, 0, -4}, [](const Tensor& x) { return prod(x, 0); }, {0, -8, 0});
    add_gradient(all, "prod/two_zeros", {2, 0, -4, 0}, [](const Tensor& x) { return prod(x, 0); }, {0, 0, 0, 0});
    add_gradient(all, "amax/ties", {1, 3, 3, -2}, [](const Tensor& x) { return amax(x); }, {0, 0.5, 0.5, 0});
    add_gradient(all, "amin/ties", {-1, 3, -1, -1, -1}, [](const Tensor& x) { return amin(x, {0}); },
                 {0.25, 0, 0.25, 0.25, 0.25});
    add_gradient(all, "norm/at_zero", {0, 0}, [](const Tensor& x) { return norm(x); }, {0, 0});
    add_gradient(all, "norm/root", {3, -4}, [](const Tensor& x) { return norm(x) * 5.0; }, {3, -4});
    add_gradient(all, "norm/sum", {3, 0, -4}, [](const Tensor& x) { return norm(x, 1); }, {1, 0, -1});
    add_gradient(all, "norm/largest", {3, 0, -4, 4}, [](const Tensor& x) { return norm(x, kInf); }, {0, 0, -0.5, 0.5});
    add_gradient(all, "std/constant", {7, 7, 7}, [](const Tensor& x) { return std(x); }, {0, 0, 0});
    add_gradient(all, "pad/reflect", {1, 2, 3},
                 [](const Tensor& x) {
                     return pad(reshape(x, {1, 3, 1}), {2, 2}, PadMode::reflect);
                 },
                 {2, 3, 2});
}

void add_values(std::vector<ValueCase>& all) {
    all.push_back({"prod/whole",
                   [] {
                       return prod(whole({kLarge + 1, 3, 2, 0, -1, 5}, {3, 2}), 0);
                   },
                   Dtype::i64,
                   {2},
                   {double((kLarge + 1) * -2), 0}});
    all.push_back({"prod/twos_complement",
                   [] {
                       return prod(whole({std::int64_t(1) << 62, 3}, {2}));
                   },
                   Dtype::i64,
                   {},
                   {-0x1p62}});
    all.push_back({"prod/booleans",
                   [] {
                       return prod(whole({1, 1, 1, 0}, {2, 2}, Dtype::boolean), 1);
                   },
                   Dtype::i64,
                   {2},
                   {1, 0}});
    all.push_back({"prod/nothing", [] { return prod(leaf({}, {2, 0}), 1); }, Dtype::f32, {2}, {1, 1}});
    all.push_back({"prod/infinite",
                   [] {
                       return prod(leaf({kInf, 0, kInf, -2, kNan, 0}, {3, 2}), 1);
                   },
                   Dtype::f32,
                   {3},
                   {kNan, -kInf, kNan}});
    all.push_back({"prod/beyond_f16_between",
                   [] {
                       return prod(leaf({1000, 1000, 0.001953125, 0.001953125}, {4}, Dtype::f16));
                   },
                   Dtype::f16,
                   {},
                   {3.814453125}});
    all.push_back({"amax/whole",
                   [] {
                       return amax(whole({kLarge, kLarge + 1, -5, -7, 3, 4, 5, 6}, {2, 2, 2}), {0, 2});
                   },
                   Dtype::i64,
                   {2},
                   {double(kLarge + 1), 6}});
    all.push_back({"amin/nan",
                   [] {
                       return amin(leaf({1, kNan, 2, 3}, {2, 2}), {1}, true);
                   },
                   Dtype::f32,
                   {2, 1},
                   {kNan, 2}});
    all.push_back({"pad/whole",
                   [] {
                       return pad(whole({1, 2}, {1, 2, 1}), {1, 1}, PadMode::constant, kLarge + 2);
                   },
                   Dtype::i64,
                   {1, 4, 1},
                   {double(kLarge + 2), 1, 2, double(kLarge + 2)}});
    all.push_back({"pad/booleans",
                   [] {
                       return pad(whole({1, 1}, {1, 2, 1}, Dtype::boolean), {-1, 2});
                   },
                   Dtype::boolean,
                   {1, 3, 1},
                   {1, 0, 0}});
    all.push_back({"pad/all_cut",
                   [] {
                       return pad(leaf({1, 2}, {1, 2, 1}), {-3, 3}, PadMode::constant, 9);
                   },
                   Dtype::f32,
                   {1, 2, 1},
                   {9, 9}});
    all.push_back({"pad/circular",
                   [] {
                       return pad(leaf({1, 2, 3}, {1, 3, 1}), {3, 2}, PadMode::circular);
                   },
                   Dtype::f32,
                   {1, 8, 1},
                   {1, 2, 3, 1, 2, 3, 1, 2}});
    // What a window divides by: 1 where it is full, less where part of it counts and is 0.
    const auto pooled = [&](const char* name, bool ceil_mode, bool count_include_pad, const std::vector<double>& row) {
        all.push_back({name,
                       [=] {
                           return avg_pool2d(ones({1, 1, 6, 1}, Dtype::f64, case_device()),
                                             {.kernel = {1, 4},
                                              .stride = {1, 3},
                                              .padding = {0, 1},
                                              .ceil_mode = ceil_mode,
                                              .count_include_pad = count_include_pad});
                       },
                       Dtype::f64,
                       {1, 1, std::int64_t(row.size()), 1},
                       row});
    };
    pooled("avg_pool2d/padding_counts", false, true, {0.75, 1});
    pooled("avg_pool2d/padding_does_not_count", false, false, {1, 1});
    pooled("avg_pool2d/ceil_counts_padding", true, true, {0.75, 1, 0.5});
    pooled("avg_pool2d/ceil_counts_pixels", true, false, {1, 1, 1});
    for (const Dtype dtype : {Dtype::f64, Dtype::f16})
        all.push_back({"upsample/exact_" + std::string(name_of(dtype)),
                       [=] {
                           const Tensor x = leaf({0, 1, 2}, {1, 1, 3, 1}, dtype);
                           return upsample(x, Pair{1, 5}, Interpolation::nearest_exact);
                       },
                       dtype,
                       {1, 1, 5, 1},
                       {0, 0, 1, 2, 2}});
}

}  // namespace

void add_exact_answers(std::vector<ValueCase>& all) {
    add_gradients(all);
    add_values(all);
}

}  // namespace invar::testing
