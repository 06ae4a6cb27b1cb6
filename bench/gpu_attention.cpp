// Attention on the GPU, forward and forward with backward, as kernels alone: TFLOP/s of the pairs that are looked at
// (with documents: of those that causality leaves). Usage: gpu_attention [plain], for the cases that cuDNN serves alone
#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/gpu_timing.h"
#include "invar/ops/ops.h"

namespace invar {
namespace {

double milliseconds(const Run& work) {
    constexpr int kTimes = 10;
    seconds(work, kTimes);
    return 1e3 * median_seconds(work, kTimes);
}

struct Case {
    std::int64_t batch, heads, kv_heads, length, width;
    bool causal;
    enum Rule { plain, documents, padding, dropout, bias } rule = plain;
};

void measure(const Case& c, bool deterministic) {
    gpu().configure({.benchmark = true, .deterministic = deterministic});
    const auto draw = [&](std::int64_t heads) {
        return ops::normal({c.batch, heads, c.length, c.width}, 0, 1, Dtype::bf16, Device::cuda());
    };
    const Tensor q = draw(c.heads), k = draw(c.kv_heads), v = draw(c.kv_heads), gy = draw(c.heads);
    const Tensor y = Tensor::empty_like(q), gq = Tensor::empty_like(q);
    const Tensor gk = Tensor::empty_like(k), gv = Tensor::empty_like(v);
    const Tensor kept = Tensor::empty({2, c.batch, c.heads, c.length}, Dtype::f32, Device::cuda());
    AttentionSpec spec;
    spec.batch = c.batch, spec.heads = c.heads, spec.kv_heads = c.kv_heads, spec.queries = spec.keys = c.length;
    spec.width = spec.value_width = c.width;
    spec.causal = c.causal, spec.scale = 0.1;
    std::vector<std::int64_t> ids, seen;  // five documents a sample; an eighth of it padding
    for (std::int64_t i = 0; i < c.batch * c.length; ++i)
        ids.push_back(i % c.length * 5 / c.length), seen.push_back(i % c.length * 8 < c.length * 7);
    const auto on_gpu = [&](const std::vector<std::int64_t>& values, Dtype dtype) {
        return ops::to(ops::cast(Tensor::from(values, {c.batch, c.length}), dtype), Device::cuda());
    };
    const Tensor documents = on_gpu(ids, Dtype::i32), mask = on_gpu(seen, Dtype::boolean);
    const Tensor bias = ops::normal({c.length, c.length}, 0, 1, Dtype::f32, Device::cuda());
    const char* rule = "";
    switch (c.rule) {
        case Case::plain:
            break;
        case Case::documents:
            spec.documents = documents.view(), rule = "documents";
            break;
        case Case::padding:
            spec.seen = mask.view(), rule = "padding";
            break;
        case Case::dropout:
            spec.dropout = 0.1, rule = "dropout";
            break;
        case Case::bias:
            spec.bias = bias.view(), rule = "bias";
            spec.bias.rank = 4;
            for (int d = 0; d < 4; ++d) {
                spec.bias.size[d] = q.size(d);
                spec.bias.stride[d] = d == 2 ? c.length : d == 3;
            }
            spec.bias.size[3] = c.length;
            break;
    }
    const auto forward = [&] { gpu().attention(spec, q.view(), k.view(), v.view(), y.view(), kept.view()); };
    const double once = milliseconds(forward);
    const double both = milliseconds([&] {
        forward();
        gpu().attention_backward(spec, q.view(), k.view(), v.view(), y.view(), kept.view(), gy.view(), gq.view(),
                                 gk.view(), gv.view());
    });
    const double flops = 4.0 * double(c.batch * c.heads * c.length * c.length * c.width) / (c.causal ? 2 : 1);
    fmt::print(
        "T {:5} D {:3} batch {:3} heads {:2}/{:<2} {:6} {:9}{:13}  forward {:7.3f} ms {:6.1f} TFLOP/s   with backward "
        "{:7.3f} ms {:6.1f} TFLOP/s\n",
        c.length, c.width, c.batch, c.heads, c.kv_heads, c.causal ? "causal" : "", rule,
        deterministic ? "deterministic" : "", once, flops / once * 1e-9, both, 3.5 * flops / both * 1e-9);
}

}  // namespace
}  // namespace invar

int main(int count, char** arguments) {
    try {
        if (!invar::why_no_cuda().empty()) {
            fmt::print(stderr, "gpu_attention: no GPU: {}\n", invar::why_no_cuda());
            return 2;
        }
        const bool alone = count > 1 && std::string_view(arguments[1]) == "plain";
        if (count > 1 && !alone) {
            fmt::print(stderr, "gpu_attention: '{}' is not known; there is: gpu_attention [plain]\n", arguments[1]);
            return 2;
        }
        using invar::Case;
        const std::vector<Case> plain{{32, 12, 12, 1024, 64, true},
                                      {4, 16, 16, 4096, 128, true},
                                      {8, 32, 4, 2048, 64, true},
                                      {4, 32, 8, 4096, 128, true},
                                      {128, 12, 12, 197, 64, false}};
        for (const Case& c : plain) invar::measure(c, false);
        if (alone) return 0;
        for (const Case& c : plain) invar::measure(c, true);
        for (const Case::Rule rule : {Case::documents, Case::padding, Case::dropout, Case::bias}) {
            invar::measure({8, 32, 4, 2048, 64, true, rule}, true);
            invar::measure({4, 16, 16, 4096, 128, true, rule}, true);
        }
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_attention: {}\n", error.what());
        return 2;
    }
}
