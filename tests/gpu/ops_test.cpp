// Every op of the table on the GPU, in every dtype, against the CPU's f64 result on the same inputs. The tolerance
// follows from the format, as for the CPU's 16-bit results.
#include "invar/ops/ops.h"

#include <algorithm>
#include <set>

#include "invar/ops/apply.h"
#include "tests/gpu/fixture.h"
#include "tests/ops/cases.h"
#include "tests/ops/rounding.h"
#include "tests/ops/value_cases.h"

namespace invar::testing {
namespace {

// What the device's own exp, log, pow, ... may be off by beyond a rounding, in epsilons of what they compute in.
constexpr std::int64_t kFunctions = 8;

// A dtype, and what the inputs are like.
class GpuOps : public OnGpu<::testing::TestWithParam<std::tuple<Dtype, Layout>>> {
  protected:
    void TearDown() override { case_device() = Device::cpu(); }
};

TEST_P(GpuOps, StayWithinTheirRoundingOfTheExactResult) {
    const auto [dtype, inputs] = GetParam();
    for (const OpCase& op_case : all_cases()) {
        const Prepared low = prepare_case(op_case, dtype, inputs);
        Tensors exact, leaves;
        std::int64_t summed = kFunctions;
        for (const Tensor& leaf : low.leaves) {
            exact.push_back(
                Tensor::from(leaf.to_vector<double>(), leaf.shape()).set_requires_grad(leaf.requires_grad()));
            leaves.push_back(on_gpu(leaf));
            summed = std::max(summed, leaf.numel() + kFunctions);
        }
        case_device() = Device::cpu();
        const Tensor reference = low.run(exact);
        case_device() = Device::cuda();
        const Tensor y = low.run(leaves);
        ASSERT_EQ(y.device(), Device::cuda()) << op_case.name;
        ASSERT_EQ(y.shape(), reference.shape()) << op_case.name;
        const std::size_t roundings = std::max<std::size_t>(ops_behind(y), 1);
        EXPECT_LE(
            error_share(y.to_vector<double>(), reference.to_vector<double>(), op_case.terms, dtype, roundings, summed),
            1)
            << op_case.name;

        const Tensor weights = Tensor::from(random_values(y.numel(), 0.5, 1.5, 99), y.shape(), y.dtype());
        backward(y, on_gpu(weights));
        case_device() = Device::cpu();
        backward(reference, Tensor::from(weights.to_vector<double>(), y.shape()));
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            if (!leaves[i].requires_grad()) continue;
            ASSERT_TRUE(leaves[i].grad()) << op_case.name << ", input " << i;
            EXPECT_LE(error_share(leaves[i].grad().to_vector<double>(), exact[i].grad().to_vector<double>(),
                                  op_case.gradient_terms, dtype, roundings + 1, summed),
                      1)
                << op_case.name << ", gradient of input " << i;
        }
    }
}

TEST_P(GpuOps, GiveTheSameGradientsHoweverTheIncomingOneLies) {
    const auto [dtype, inputs] = GetParam();
    case_device() = Device::cuda();
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, dtype, inputs);
        Tensors leaves;
        for (const Tensor& leaf : prepared.leaves) leaves.push_back(on_gpu(leaf));
        for (const Layout incoming : kLayouts)
            EXPECT_LE(layout_error(prepared.run, leaves, incoming, op_case.gradient_terms, dtype), 1)
                << op_case.name << ", " << name_of(incoming);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuOps,
                         ::testing::Combine(::testing::Values(Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16),
                                            ::testing::Values(Layout::dense, Layout::transposed)),
                         [](const auto& info) {
                             return fmt::format("{}_{}", name_of(std::get<0>(info.param)),
                                                name_of(std::get<1>(info.param)));
                         });

class GpuGradients : public OnGpu<::testing::TestWithParam<std::tuple<Layout, Layout>>> {
  protected:
    void SetUp() override {
        OnGpu::SetUp();
        case_device() = Device::cuda();
    }
    void TearDown() override { case_device() = Device::cpu(); }
};

TEST_P(GpuGradients, OfEveryOpMatchFiniteDifferences) {
    const auto [inputs, incoming] = GetParam();
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, Dtype::f64, inputs);
        Tensors leaves;
        for (const Tensor& leaf : prepared.leaves) leaves.push_back(on_gpu(leaf));
        EXPECT_EQ(gradient_mismatch(prepared.run, leaves, incoming), "") << op_case.name;
    }
}

std::string layouts(const ::testing::TestParamInfo<std::tuple<Layout, Layout>>& info) {
    return fmt::format("{}_inputs_{}_gradient", name_of(std::get<0>(info.param)), name_of(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Inputs, GpuGradients,
                         ::testing::Combine(::testing::Values(Layout::dense, Layout::transposed, Layout::sliced,
                                                              Layout::repeated),
                                            ::testing::Values(Layout::dense)),
                         layouts);
INSTANTIATE_TEST_SUITE_P(Incoming, GpuGradients,
                         ::testing::Combine(::testing::Values(Layout::dense),
                                            ::testing::Values(Layout::transposed, Layout::sliced, Layout::repeated,
                                                              Layout::constant)),
                         layouts);

// Needs no GPU to fail: an op without a case would be tested on no device.
TEST(GpuCases, AreThereForEveryOp) {
    std::set<std::string> covered;
    for (const OpCase& op_case : all_cases()) covered.insert(op_case.op());
    for (const ValueCase& value_case : value_cases()) covered.insert(value_case.op());
    for (const OpEntry& entry : registered_ops()) {
        if (entry.name == std::string_view("steep") || entry.name == std::string_view("poison"))
            continue;  // of other tests, with faults to be found
        EXPECT_TRUE(covered.contains(entry.name)) << entry.name << " has no case in tests/ops/cases.cpp";
    }
    EXPECT_GT(registered_ops().size(), 50u);
}

class GpuSizes : public OnGpu<::testing::TestWithParam<Dtype>> {
  protected:
    // One rounding of the result and, over sums of n random terms, of the order of sqrt(n) in FP32.
    double allowed(std::int64_t n) const {
        return format_info(GetParam()).epsilon + std::sqrt(double(n)) * format_info(Dtype::f32).epsilon;
    }
};

TEST_P(GpuSizes, OfLinearLayersMayBeOddAndLarge) {
    for (const auto& [rows, in, out] :
         {std::array{1, 1, 1}, {1, 129, 7}, {65, 257, 129}, {128, 9216, 128}, {33, 128, 10}}) {
        const Tensor x = random_on_gpu({rows, in}, GetParam(), 1), w = random_on_gpu({out, in}, GetParam(), 2);
        const Tensor b = random_on_gpu({out}, GetParam(), 3);
        const Tensor xe = exactly(x), we = exactly(w), be = exactly(b);
        const Tensor y = ops::linear(x, w, b), ye = ops::linear(xe, we, be);
        const std::string what = fmt::format("{}x{} by {}", rows, in, out);
        EXPECT_LE(distance(y, ye), allowed(in)) << what;
        const Tensor g = random_on_gpu(y.shape(), GetParam(), 4).detach();
        backward(y, g);
        backward(ye, exactly(g).detach());
        EXPECT_LE(distance(x.grad(), xe.grad()), allowed(out)) << what;
        EXPECT_LE(distance(w.grad(), we.grad()), allowed(rows)) << what;
        EXPECT_LE(distance(b.grad(), be.grad()), allowed(rows)) << what;
    }
}

TEST_P(GpuSizes, OfConvolutionsAreThoseOfRealModels) {
    struct Layer {
        Shape x, w;
        ops::Conv2dOptions options;
    };
    const Layer layers[] = {{{8, 28, 28, 1}, {32, 3, 3, 1}, {}},
                            {{8, 26, 26, 32}, {64, 3, 3, 32}, {}},
                            {{2, 14, 14, 64}, {32, 1, 1, 64}, {}},
                            {{2, 15, 13, 24}, {40, 5, 3, 24}, {{2, 2}, {2, 1}}},
                            {{2, 9, 9, 16}, {32, 3, 3, 4}, {{1, 1}, {1, 1}, {1, 1}, 4}}};
    for (const Layer& layer : layers) {
        const Tensor x = random_on_gpu(layer.x, GetParam(), 1), w = random_on_gpu(layer.w, GetParam(), 2);
        const Tensor b = random_on_gpu({layer.w[0]}, GetParam(), 3);
        const Tensor xe = exactly(x), we = exactly(w), be = exactly(b);
        const Tensor y = ops::conv2d(x, w, b, layer.options), ye = ops::conv2d(xe, we, be, layer.options);
        const std::string what = layer.x.str() + " with " + layer.w.str();
        EXPECT_LE(distance(y, ye), 2 * allowed(w.numel() / w.size(0))) << what;  // the bias may be a second rounding
        const Tensor g = random_on_gpu(y.shape(), GetParam(), 4).detach();
        backward(y, g);
        backward(ye, exactly(g).detach());
        EXPECT_LE(distance(x.grad(), xe.grad()), allowed(w.numel() / w.size(3))) << what;
        EXPECT_LE(distance(w.grad(), we.grad()), allowed(y.numel() / y.size(-1))) << what;
        EXPECT_LE(distance(b.grad(), be.grad()), allowed(y.numel() / y.size(-1))) << what;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuSizes, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_F(Gpu, GivesTheSameWholeNumbersAndBooleansAsTheCpu) {
    case_device() = Device::cuda();
    for (const ValueCase& value_case : value_cases()) EXPECT_EQ(mismatch(value_case), "");
    case_device() = Device::cpu();
}

TEST_F(Gpu, MultipliesInTf32OnlyWhereItIsAsked) {
    const NoGrad no_grad;
    const Tensor a = random_on_gpu({256, 512}, Dtype::f32, 1), b = random_on_gpu({512, 256}, Dtype::f32, 2);
    const Tensor exact = ops::matmul(exactly(a), exactly(b));
    EXPECT_LT(distance(ops::matmul(a, b), exact), 1e-6);
    const Tf32Scope tf32(true);
    const double error = distance(ops::matmul(a, b), exact);
    EXPECT_GT(error, 1e-5);
    EXPECT_LT(error, 1e-3);
}

TEST_F(Gpu, RefusesToMixDevices) {
    EXPECT_THROW(ops::add(ops::ones({3}), ops::ones({3}, Dtype::f32, Device::cuda())), Error);
}

}  // namespace
}  // namespace invar::testing
