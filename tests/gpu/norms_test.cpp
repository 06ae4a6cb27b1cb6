// Norms, residual sums before them, rotary positions and the softmax of 16 bits on the GPU: against the CPU in f64 at
// the sizes of models and at odd ones, in the mixed dtypes that autocast makes, and to the bits of their unfused forms.
#include "invar/amp/autocast.h"
#include "invar/autograd/watch.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

struct Formats {
    Dtype stream, low;  // of the residual stream; of the branch and what autocast gives, f32: no autocast
    std::string str() const { return fmt::format("{} beside {}", name_of(stream), name_of(low)); }
};
constexpr Formats kFormats[] = {{Dtype::f32, Dtype::f32},
                                {Dtype::f32, Dtype::f16},
                                {Dtype::f32, Dtype::bf16},
                                {Dtype::f16, Dtype::f16},
                                {Dtype::bf16, Dtype::bf16}};
// Rows: several turns of every block, and fewer than there are blocks.
constexpr std::int64_t kColumns[] = {64, 768, 1024, 1600, 2048, 4096, 8192, 16384, 7, 1023, 2050, 5001};

CastPolicy policy_of(Dtype low) {
    return low == Dtype::f32 ? Autocast::off() : CastPolicy{CastPolicy::Mode::low, low, Level::O1};
}

// What ranks tell of their rows, one of which has none, becomes on the GPU what it becomes on the CPU.
TEST_F(Gpu, BatchNormsOfRanksAreTheCpus) {
    constexpr std::int64_t kRanks = 3, kChannels = 301;
    std::vector<double> told = random_values(kRanks * (1 + 2 * kChannels), 0.2, 2, 1);
    for (std::int64_t r = 0; r < kRanks; ++r) told[std::size_t(r * (1 + 2 * kChannels))] = double(r * 17);
    const Tensor sums = Tensor::from(random_values(kRanks * 2 * kChannels, -1, 1, 2), {kRanks, 2 * kChannels});
    const Tensor parts = Tensor::from(told, {kRanks, 1 + 2 * kChannels});
    const auto made = [&](Device device) {
        std::vector<Tensor> all;
        for (const double value : {0.0, 0.0, 0.5, 2.0, 0.0, 0.0})
            all.push_back(ops::full({kChannels}, value, Dtype::f32, device));
        const Tensor there = ops::to(parts, device), gradients = ops::to(sums, device);
        const Tensor gamma = ops::to(Tensor::from(random_values(kChannels, 1, 2, 3), {kChannels}, Dtype::f32), device);
        Kernels& kernels = kernels_for(device);
        kernels.batch_norm_merge({there.view(), all[0].view(), all[1].view(), all[2].view(), all[3].view(), 1e-3, 0.1});
        kernels.batch_norm_pull(
            {there.view(), gradients.view(), all[1].view(), gamma.view(), all[4].view(), all[5].view()});
        return all;
    };
    const std::vector<Tensor> here = made(Device::cpu()), there = made(Device::cuda());
    for (std::size_t i = 0; i < here.size(); ++i) EXPECT_LT(distance(there[i], here[i]), 1e-6) << i;
    EXPECT_GT(norm(here[4].to_vector<double>()), 0);
}

struct Inputs {
    Tensor x, branch, gamma, beta;
    Tensor sum, normed;

    Inputs(std::int64_t rows, std::int64_t columns, const Formats& f)
        : x(random_on_gpu({rows, columns}, f.stream, 1)),
          branch(random_on_gpu({rows, columns}, f.low, 2)),
          gamma(random_on_gpu({columns}, Dtype::f32, 3)),
          beta(random_on_gpu({columns}, Dtype::f32, 4)) {}
    // The same numbers on the CPU, in f64.
    explicit Inputs(const Inputs& other, bool)
        : x(exactly(other.x)), branch(exactly(other.branch)), gamma(exactly(other.gamma)), beta(exactly(other.beta)) {}

    void run(bool fused, bool rms) {
        const Shape last{x.size(-1)};
        if (fused) {
            const Tensors both =
                rms ? ops::add_rms_norm(x, branch, gamma) : ops::add_layer_norm(x, branch, gamma, beta);
            sum = both[0], normed = both[1];
        } else {
            sum = x + branch;
            normed = rms ? ops::rms_norm(sum, gamma) : ops::layer_norm(sum, last, gamma, beta);
        }
    }
    // Both results get a gradient: that of the sum waits for the norm's.
    void send_back(const Tensor& to_sum, const Tensor& to_normed) {
        backward(Tensors{sum, normed}, Tensors{to_sum, to_normed});
    }
    std::vector<std::string> bytes(bool rms) const {
        std::vector<std::string> all;
        for (const Tensor& t : {sum, normed, x.grad(), branch.grad(), gamma.grad()}) all.push_back(bytes_of(t));
        if (!rms) all.push_back(bytes_of(beta.grad()));
        return all;
    }
};

// A few roundings of the format that a result is kept in, and those of FP32 sums.
double allowed(Dtype dtype, std::int64_t summed) {
    return 2 * format_info(dtype).epsilon + 0.5 * std::sqrt(double(summed)) * format_info(Dtype::f32).epsilon;
}

TEST_F(Gpu, NormsAndResidualSumsAreTheCpusAtTheSizesOfModels) {
    for (const Formats& f : kFormats)
        for (const std::int64_t columns : kColumns)
            for (const std::int64_t rows : {3, 4500}) {
                if (rows * columns > (std::int64_t(1) << 24)) continue;
                for (const bool rms : {false, true}) {
                    const std::string what = fmt::format("{}x{}, {}, rms {}", rows, columns, f.str(), rms);
                    Inputs gpu(rows, columns, f), exact(gpu, true);
                    const Tensor to_sum = random_on_gpu({rows, columns}, f.stream, 5).detach(),
                                 to_normed = random_on_gpu({rows, columns}, f.low, 6).detach();
                    {
                        const Autocast cast(policy_of(f.low));
                        gpu.run(true, rms);
                    }
                    exact.run(true, rms);
                    ASSERT_EQ(gpu.sum.dtype(), f.stream) << what;
                    ASSERT_EQ(gpu.normed.dtype(), f.low) << what;
                    EXPECT_LE(distance(gpu.sum, exact.sum), allowed(f.stream, 0)) << what;
                    // The sum, rounded, is what is normalised.
                    EXPECT_LE(distance(gpu.normed, exact.normed), allowed(f.low, 16) + 2 * allowed(f.stream, 0))
                        << what;
                    gpu.send_back(to_sum, to_normed);
                    exact.send_back(exactly(to_sum).detach(), exactly(to_normed).detach());
                    const double of_stream = 4 * allowed(f.stream, 16);
                    EXPECT_LE(distance(gpu.x.grad(), exact.x.grad()), of_stream) << what;
                    EXPECT_LE(distance(gpu.branch.grad(), exact.branch.grad()), of_stream + allowed(f.low, 0)) << what;
                    EXPECT_LE(distance(gpu.gamma.grad(), exact.gamma.grad()), of_stream) << what;
                    if (!rms) {
                        EXPECT_LE(distance(gpu.beta.grad(), exact.beta.grad()), allowed(Dtype::f32, 64)) << what;
                    }
                }
            }
}

TEST_F(Gpu, AResidualSumWithItsNormHasTheBitsOfTheTwoOpsEveryTime) {
    for (const Formats& f : kFormats)
        for (const std::int64_t columns : kColumns)
            for (const bool rms : {false, true}) {
                const Tensor to_sum = random_on_gpu({300, columns}, f.stream, 5).detach(),
                             to_normed = random_on_gpu({300, columns}, f.low, 6).detach();
                const auto outcome = [&](bool fused) {
                    Inputs inputs(300, columns, f);
                    const Autocast cast(policy_of(f.low));
                    inputs.run(fused, rms);
                    OpWatcher watcher;  // with it, the engine makes every sum of gradients by itself
                    const WatchScope apart(fused ? nullptr : &watcher);
                    inputs.send_back(to_sum, to_normed);
                    return inputs.bytes(rms);
                };
                const std::vector<std::string> first = outcome(true);
                EXPECT_EQ(first == outcome(true), true) << columns << ", " << f.str() << ", rms " << rms << ", again";
                EXPECT_EQ(first == outcome(false), true) << columns << ", " << f.str() << ", rms " << rms;
            }
}

// No kernel of packs is there for these; they are right all the same.
TEST_F(Gpu, NormsTakeEveryMixtureOfDtypes) {
    for (const Dtype stream : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const Dtype branch : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16})
            for (const CastPolicy& policy :
                 {Autocast::off(), Autocast::fp32(), CastPolicy{CastPolicy::Mode::low, Dtype::f16, Level::O1}}) {
                Inputs gpu(5, 96, {stream, branch}), exact(gpu, true);
                {
                    const Autocast cast(policy);
                    gpu.run(true, false);
                }
                exact.run(true, false);
                const std::string what = fmt::format("{} + {}", name_of(stream), name_of(branch));
                const double both = allowed(gpu.sum.dtype(), 16) + allowed(gpu.normed.dtype(), 16);
                EXPECT_LE(distance(gpu.sum, exact.sum), both) << what;
                EXPECT_LE(distance(gpu.normed, exact.normed), 2 * both) << what;
                gpu.send_back(ops::ones_like(gpu.sum), ops::ones_like(gpu.normed));
                exact.send_back(ops::ones_like(exact.sum), ops::ones_like(exact.normed));
                for (const auto& [got, want] : {std::pair{gpu.x, exact.x}, {gpu.branch, exact.branch}}) {
                    ASSERT_EQ(got.grad().dtype(), got.dtype()) << what;
                    EXPECT_LE(distance(got.grad(), want.grad()), 8 * both + allowed(got.dtype(), 0)) << what;
                }
            }
}

TEST_F(Gpu, SoftmaxOf16BitsGivesFp32WithItsDigits) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        for (const std::int64_t columns : {8, 77, 1024, 4096, 50257})
            for (const bool log : {false, true}) {
                const Tensor x = random_on_gpu({9, columns}, dtype, 1), exact = exactly(x);
                const auto run = [&](const Tensor& t) { return log ? ops::log_softmax(t) : ops::softmax(t); };
                Tensor y;
                {
                    const Autocast cast(dtype);
                    y = run(x);
                }
                // As large as the rows are long: gradients of wide rows would be below what FP16 holds in full.
                const Tensor random = random_on_gpu({9, columns}, Dtype::f32, 2).detach();
                const Tensor z = run(exact), g = random * double(columns);
                ASSERT_EQ(y.dtype(), Dtype::f32);
                EXPECT_LE(distance(y, z), 8 * format_info(Dtype::f32).epsilon) << columns << ", log " << log;
                backward(y, g);
                backward(z, exactly(g).detach());
                ASSERT_EQ(x.grad().dtype(), dtype);
                EXPECT_LE(distance(x.grad(), exact.grad()), format_info(dtype).epsilon) << columns << ", log " << log;
            }
}

TEST_F(Gpu, RotaryIsTheCpusAtTheSizesOfModels) {
    struct Case {
        std::int64_t heads, kv_heads, width, turned;
    };
    for (const Case& c : {Case{12, 12, 64, 64}, Case{32, 4, 64, 64}, Case{8, 2, 128, 128}, Case{3, 1, 20, 20},
                          Case{4, 4, 64, 32}, Case{4, 0, 80, 80}, Case{2, 1, 6, 4}})
        for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
            const Shape shape{3, 130, (c.heads + 2 * c.kv_heads) * c.width};
            const Tensor x = random_on_gpu(shape, dtype, 1), exact = exactly(x);
            const Tensor table = ops::rotary_table(200, ops::rotary_speeds(c.turned));
            std::vector<std::int64_t> places;
            for (std::int64_t i = 0; i < 3 * 130; ++i) places.push_back(i * 7 % 150);
            const Tensor positions = Tensor::from(places, {3, 130});
            for (const bool given : {false, true}) {
                const auto run = [&](const Tensor& t) {
                    ops::RotaryPositions at{50};
                    if (given) at.positions = ops::to(positions, t.device());
                    return ops::rotary(t, c.heads, c.kv_heads, ops::to(table, t.device()), at);
                };
                const std::string what = fmt::format("{} heads of {}, {}", c.heads, c.width, name_of(dtype));
                x.set_grad({}), exact.set_grad({});
                const Tensor y = run(x), z = run(exact);
                EXPECT_LE(distance(y, z), format_info(dtype).epsilon) << what;
                backward(y, x.detach()), backward(z, exact.detach());
                EXPECT_LE(distance(x.grad(), exact.grad()), format_info(dtype).epsilon) << what;
            }
        }
}

TEST_F(Gpu, RotaryGivesNaNForAPositionThatTheTableDoesNotHold) {
    for (const std::int64_t width : {64, 6}) {
        const Tensor x = ops::ones({1, 2, width}, Dtype::f32, Device::cuda());
        const Tensor table = ops::rotary_table(4, ops::rotary_speeds(width), Dtype::f32, Device::cuda());
        const Tensor positions = ops::to(Tensor::from(std::vector<std::int64_t>{3, 4}, {2}), Device::cuda());
        const std::vector<double> y = ops::rotary(x, 1, 0, table, {0, positions}).to_vector<double>();
        for (std::int64_t i = 0; i < 2 * width; ++i) EXPECT_EQ(std::isnan(y[std::size_t(i)]), i >= width) << i;
    }
}

}  // namespace
}  // namespace invar::testing
