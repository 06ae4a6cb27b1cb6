// Ops that must not wait for the device: recorded once, replayed on other values, to the bits of the ops themselves.
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

struct Recorded {
    const char* name;
    Tensor (*run)(const Tensor& x, const Tensor& ids);  // x f32 [6, 40], ids i64 [6] below 40
};

const Recorded kRecorded[] = {
    {"compare", [](const Tensor& x, const Tensor&) { return cast((x > 0.25) & ~(x > neg(x)), Dtype::f32); }},
    {"masked_fill", [](const Tensor& x, const Tensor&) { return masked_fill(x, x < 0, -1e4); }},
    {"where", [](const Tensor& x, const Tensor&) { return where(x != 0, x, 0.5); }},
    {"tril", [](const Tensor& x, const Tensor&) { return tril(x, 3) + triu(x, 5); }},
    {"roll",
     [](const Tensor& x, const Tensor&) {
         return roll(x, {5, -1}, {1, 0});
     }},
    {"index_select", [](const Tensor& x, const Tensor& ids) { return index_select(x, 1, ids); }},
    {"one_hot", [](const Tensor& x, const Tensor& ids) { return x * one_hot(ids, 40); }},
    {"arange", [](const Tensor& x, const Tensor&) { return x * arange(40, Dtype::i64, x.device()); }},
    {"cumsum", [](const Tensor& x, const Tensor&) { return cumsum(x, 1) + cumsum(x, 0); }},
    {"sort", [](const Tensor& x, const Tensor&) { return sort(x, 1, true).values + sort(x, 0).values; }},
    {"topk", [](const Tensor& x, const Tensor&) { return topk(x, 3, 1, false).values; }},
    {"whole sums", [](const Tensor& x, const Tensor& ids) { return x * sum(ids); }},
    {"any", [](const Tensor& x, const Tensor&) { return where(any(x > 0.9, {1}, true), x, neg(x)); }},
    {"min", [](const Tensor& x, const Tensor&) { return min(x, 1).values; }},
    {"std", [](const Tensor& x, const Tensor&) { return std(x, {1}) + ops::norm(x, 2, {1}) + amax(x, {1}); }},
    {"prod", [](const Tensor& x, const Tensor& ids) { return prod(x + 1.0, 1) * prod(ids); }},
    {"pad",
     [](const Tensor& x, const Tensor&) {
         const Tensor images = reshape(x, {1, 6, 5, 8});
         return pad(images, {1, 2, 2, 1}) + pad(images, {1, 2, 2, 1}, PadMode::reflect);
     }},
    {"bicubic",
     [](const Tensor& x, const Tensor&) {
         return upsample(reshape(x, {1, 6, 5, 8}), 1.5, 2, Interpolation::bicubic);
     }},
    {"argmin", [](const Tensor& x, const Tensor&) { return x * argmin(x, 0); }},
    {"cross_entropy, weights",
     [](const Tensor& x, const Tensor& ids) {
         const Tensor weight = cast(arange(40, Dtype::i64, x.device()), Dtype::f32);
         return cross_entropy(x, ids, {.ignore_index = 3, .label_smoothing = 0.1, .weight = weight});
     }},
    {"cross_entropy, probabilities", [](const Tensor& x, const Tensor&) { return cross_entropy(x, softmax(x)); }},
    {"embedding, padding", [](const Tensor& x, const Tensor& ids) { return embedding(ids, transpose(x, 0, 1), 3); }},
};

TEST_F(Gpu, RecordsOpsThatCompareOrderAndCount) {
    Kernels& kernels = kernels_for(Device::cuda());
    for (const Recorded& recorded : kRecorded) {
        const auto values = [](std::uint64_t seed) {
            return Tensor::from(random_values(240, -1, 1, seed), {6, 40}, Dtype::f32);
        };
        const auto labels = [](std::int64_t step) {
            std::vector<std::int64_t> ids;
            for (std::int64_t i = 0; i < 6; ++i) ids.push_back(i * step % 40);
            return Tensor::from(ids, {6});
        };
        const Tensor x = on_gpu(values(1)).set_requires_grad(), ids = to(labels(7), Device::cuda());
        const auto both = [&](const Tensor& input, const Tensor& numbers, Tensor& y, Tensor& gradient) {
            input.set_grad({});
            y = recorded.run(input, numbers);
            if (y.requires_grad()) backward(y, ones(y.shape(), y.dtype(), y.device()));
            gradient = input.grad();
        };
        Tensor y, gradient, expected, slope;
        both(x, ids, y, gradient);  // the first run may load and tune what a recording must not
        const MemoryPool pool(Device::cuda());
        std::unique_ptr<Recording> recording;
        ASSERT_NO_THROW(recording = kernels.record(pool, [&] { both(x, ids, y, gradient); })) << recorded.name;
        {
            const NoGrad no_grad;
            copy_(x.detach(), values(2));
            copy_(ids, labels(11));
        }
        recording->replay();
        both(on_gpu(values(2)).set_requires_grad(), to(labels(11), Device::cuda()), expected, slope);
        EXPECT_TRUE(bytes_of(y) == bytes_of(expected)) << recorded.name;
        ASSERT_EQ(gradient.defined(), slope.defined()) << recorded.name;
        if (slope) {
            EXPECT_TRUE(bytes_of(gradient) == bytes_of(slope)) << recorded.name << "'s gradient";
        }
    }
}

TEST_F(Gpu, GivesThePaddingRowNoGradient) {
    const Tensor table = on_gpu(ones({4, 3}).set_requires_grad());
    const Tensor ids = to(Tensor::from(std::vector<std::int64_t>{1, 0, 3, 1, 1}, {5}), Device::cuda());
    backward(embedding(ids, table, 1), full({5, 3}, 2, Dtype::f32, Device::cuda()));
    EXPECT_EQ(table.grad().to_vector<double>(), (std::vector<double>{2, 2, 2, 0, 0, 0, 0, 0, 0, 2, 2, 2}));
}

}  // namespace
}  // namespace invar::testing
