#include "invar/ops/linears.h"

#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/gradcheck.h"

namespace invar {
namespace {

using testing::random_values;

// Weights in one storage, one behind the other, as an optimizer keeps neighbours; or each by itself.
struct Layers {
    Tensors weights, biases;
    Tensor x = Tensor::from(random_values(6 * 8, -1, 1, 1), {6, 8}, Dtype::f32).set_requires_grad();
    explicit Layers(bool adjacent) {
        const std::int64_t outputs[] = {5, 3, 4};
        const Tensor store = Tensor::from(random_values(12 * 8, -1, 1, 2), {12 * 8}, Dtype::f32);
        const Tensor more = Tensor::from(random_values(12, -1, 1, 3), {12}, Dtype::f32);
        std::int64_t first = 0;
        for (const std::int64_t out : outputs) {
            Tensor w = store.window(first * 8, {out, 8}), b = more.window(first, {out});
            if (!adjacent)
                w = Tensor::from(w.to_vector<float>(), w.shape()), b = Tensor::from(b.to_vector<float>(), b.shape());
            weights.push_back(w.set_requires_grad());
            biases.push_back(b.set_requires_grad());
            first += out;
        }
    }
};

TEST(Linears, AreTheLayersSideBySideWhereverTheirWeightsLie) {
    for (const bool adjacent : {true, false})
        for (const bool biased : {true, false}) {
            const Layers ours(adjacent), theirs(false);
            const Tensor y = ops::linears(ours.x, ours.weights, biased ? ours.biases : Tensors{});
            Tensors parts;
            for (std::size_t i = 0; i < 3; ++i)
                parts.push_back(ops::linear(theirs.x, theirs.weights[i], biased ? theirs.biases[i] : Tensor()));
            const Tensor z = ops::cat(parts, -1);
            const auto close = [](const Tensor& a, const Tensor& b, const std::string& what) {
                const std::vector<double> u = a.to_vector<double>(), v = b.to_vector<double>();
                ASSERT_EQ(u.size(), v.size()) << what;
                for (std::size_t i = 0; i < u.size(); ++i) EXPECT_NEAR(u[i], v[i], 4e-6) << what << " " << i;
            };
            close(y, z, "result");
            const Tensor g = Tensor::from(random_values(6 * 12, -1, 1, 4), {6, 12}, Dtype::f32);
            for (int times = 0; times < 2; ++times) {  // the second adds to the first
                backward(ops::linears(ours.x, ours.weights, biased ? ours.biases : Tensors{}), g);
                Tensors again;
                for (std::size_t i = 0; i < 3; ++i)
                    again.push_back(ops::linear(theirs.x, theirs.weights[i], biased ? theirs.biases[i] : Tensor()));
                backward(ops::cat(again, -1), g);
            }
            close(ours.x.grad(), theirs.x.grad(), "input");
            for (std::size_t i = 0; i < 3; ++i) {
                close(ours.weights[i].grad(), theirs.weights[i].grad(), "weight");
                if (biased) close(ours.biases[i].grad(), theirs.biases[i].grad(), "bias");
            }
        }
}

TEST(Linears, RefuseWhatDoesNotGoTogether) {
    const Tensor x = ops::zeros({2, 4}), w = ops::zeros({3, 4});
    EXPECT_ERROR(ops::linears(x, {}), Error, "0 weights");
    EXPECT_ERROR(ops::linears(x, {w, w}, {ops::zeros({3})}), Error, "a bias for each");
    EXPECT_ERROR(ops::linears(x, {w, ops::zeros({3, 5})}), Error, "its last size");
    EXPECT_ERROR(ops::linears(x, {w, w}, {ops::zeros({3}), Tensor()}), Error, "some are not");
    EXPECT_ERROR(ops::swiglu(ops::zeros({2, 3})), Error, "needs floating [..., 2 n]");
}

}  // namespace
}  // namespace invar
