// Attention on the GPU, forward and backward, through the public op: TFLOP/s of the pairs that are looked at, as
// PyTorch's side (bench/torch_attention.py) counts them. Usage: gpu_attention
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "invar/autograd/node.h"
#include "invar/kernels/devices.h"
#include "invar/ops/ops.h"

namespace invar {
namespace {

double milliseconds(const std::function<void()>& work) {
    Kernels& gpu = kernels_for(Device::cuda());
    constexpr int kRounds = 5, kTimes = 10;
    std::vector<double> rounds;
    for (int round = -1; round < kRounds; ++round) {
        gpu.synchronize();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kTimes; ++i) work();
        gpu.synchronize();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        if (round >= 0) rounds.push_back(1e3 * taken.count() / kTimes);
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[kRounds / 2];
}

struct Case {
    std::int64_t batch, heads, kv_heads, length, width;
    bool causal, deterministic;
};

void measure(const Case& c) {
    kernels_for(Device::cuda()).configure({.benchmark = true, .deterministic = c.deterministic});
    const auto draw = [&](std::int64_t heads) {
        return ops::normal({c.batch, heads, c.length, c.width}, 0, 1, Dtype::bf16, Device::cuda());
    };
    Tensor q = draw(c.heads), k = draw(c.kv_heads), v = draw(c.kv_heads);
    const Tensor gradient = draw(c.heads);
    const auto attend = [&] { return ops::attention(q, k, v, {.causal = c.causal}); };
    const double forward = milliseconds([&] { attend(); });
    for (Tensor* t : {&q, &k, &v}) t->set_requires_grad();
    const double both = milliseconds([&] {
        backward(attend(), gradient);
        for (Tensor* t : {&q, &k, &v}) t->set_grad({});
    });
    const double flops = 4.0 * double(c.batch * c.heads * c.length * c.length * c.width) / (c.causal ? 2 : 1);
    fmt::print(
        "T {:5} D {:3} batch {:3} heads {:2}/{:<2} {:6}{:14}  forward {:7.3f} ms {:6.1f} TFLOP/s   with backward "
        "{:7.3f} ms {:6.1f} TFLOP/s\n",
        c.length, c.width, c.batch, c.heads, c.kv_heads, c.causal ? "causal" : "",
        c.deterministic ? " deterministic" : "", forward, flops / forward * 1e-9, both, 3.5 * flops / both * 1e-9);
}

}  // namespace
}  // namespace invar

int main() {
    try {
        if (!invar::why_no_cuda().empty()) {
            fmt::print(stderr, "gpu_attention: no GPU: {}\n", invar::why_no_cuda());
            return 2;
        }
        for (const bool deterministic : {false, true})
            for (const invar::Case& c : {invar::Case{32, 12, 12, 1024, 64, true, deterministic},
                                         invar::Case{4, 16, 16, 4096, 128, true, deterministic},
                                         invar::Case{8, 32, 4, 2048, 64, true, deterministic},
                                         invar::Case{128, 12, 12, 197, 64, false, deterministic}})
                measure(c);
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_attention: {}\n", error.what());
        return 2;
    }
}
