// Class losses with weights, with probabilities for targets and with label smoothing, against PyTorch 1.13's numbers;
// and the rows of an embedding that are padding.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;
using Values = std::vector<double>;

const Values kLogits{0.5, -1.25, 2, 1.5, 0.25, -0.75, -2, 0, 1, 0.125, 3, -0.5};
const Values kProbabilities{0.2, 0.3, 0.5, 1, 0, 0, 0.25, 0.25, 0.5, 0.1, 0.9, 0};

Tensor logits(Dtype dtype = Dtype::f64) {
    return Tensor::from(kLogits, {4, 3}, dtype).set_requires_grad();
}
Tensor probabilities() {
    return Tensor::from(kProbabilities, {4, 3}).set_requires_grad();
}
Tensor labels() {
    return Tensor::from(std::vector<std::int64_t>{2, -100, 0, 1}, {4});
}
Tensor weight() {
    return Tensor::from(Values{0.5, 2, 1.25}, {3});
}

void expect_near(const Tensor& got, const Values& expected, double allowed = 1e-11) {
    const Values values = got.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], allowed) << i;
}

TEST(ClassLosses, WithWeightsDivideTheMeanByTheWeightsOfTheTargets) {
    const Tensor x = logits();
    const Tensor mean = cross_entropy(x, labels(), {.weight = weight()});
    expect_near(mean, {0.5683774900601});
    backward(mean);
    expect_near(x.grad(), {0.0589400607025, 0.0102422467755, -0.069182307478, 0, 0, 0, -0.128650796405, 0.0345995280457,
                           0.0940512683598, 0.0276902570238, -0.0425117835544, 0.0148215265306});
    expect_near(cross_entropy(x, labels(), {.reduction = Reduction::sum, .weight = weight()}), {2.13141558772538});
    expect_near(cross_entropy(x, labels(), {.reduction = Reduction::none, .weight = weight()}),
                {0.290777478877541, 0, 1.67450610838409, 0.166132000463741});
    const Tensor y = logits(), nll = nll_loss(y, labels(), {.weight = weight()});
    expect_near(nll, {-2});
    backward(nll);
    expect_near(y.grad(), {0, 0, -1.25 / 3.75, 0, 0, 0, -0.5 / 3.75, 0, 0, 0, -2 / 3.75, 0});
    expect_near(nll_loss(y, labels(), {.reduction = Reduction::none, .weight = weight()}), {-2.5, 0, 1, -6});
}

TEST(ClassLosses, WithWeightsSmoothLabelsByTheWeightsOfAllClasses) {
    const Tensor x = logits();
    const Tensor mean = cross_entropy(x, labels(), {.label_smoothing = 0.1, .weight = weight()});
    expect_near(mean, {0.680918636613049});
    backward(mean);
    expect_near(x.grad(), {0.054495616258, -0.0075355310023, -0.0469600852557, 0, 0, 0, -0.119059526977,
                           0.0220116794747, 0.0970478475026, 0.022207427941, -0.0253620361156, 0.0031546081746});
    expect_near(cross_entropy(x, labels(), {Reduction::none, -100, 0.1, weight()}),
                {0.532444145544207, 0, 1.66734869130837, 0.353652050446351});
}

TEST(ClassLosses, OfProbabilitiesAreMeansOverTheRows) {
    const Tensor x = logits(), p = probabilities();
    const Tensor mean = cross_entropy(x, p);
    expect_near(mean, {0.889468202377329});
    backward(mean);
    expect_near(x.grad(), {-0.00579495447314, -0.0673183149184, 0.0731132693915, -0.0703899147122, 0.0514591509994,
                           0.0189307637128, -0.0537202432602, 0.0023741150856, 0.0513461281746, -0.0120201920201,
                           0.00507260145888, 0.00694759056122});
    expect_near(p.grad(),
                {0.433155495776, 0.870655495776, 0.0581554957755, 0.0826681523518, 0.395168152352, 0.645168152352,
                 0.837253054192, 0.337253054192, 0.087253054192, 0.739516500058, 0.020766500058, 0.895766500058});
    expect_near(cross_entropy(x, p, {.label_smoothing = 0.1}), {0.980614035710662});
    expect_near(cross_entropy(x, p, {Reduction::none, -100, 0.1, weight()}),
                {2.43814612940359, 0.367220083742487, 1.3404319376269, 0.471813140415048});
    expect_near(cross_entropy(x, p, {Reduction::mean, -100, 0, weight()}), {1.04556195092575});  // not by the weights
    expect_near(cross_entropy(x, p, {Reduction::sum, -100, 0, weight()}), {4.182247803703});
}

TEST(ClassLosses, WithEqualWeightsAreTheOrdinaryOnes) {
    for (const double smoothing : {0.0, 0.1}) {
        const Tensor x = logits(), y = logits();
        const Tensor plain = cross_entropy(x, labels(), {.label_smoothing = smoothing});
        const Tensor equal = cross_entropy(y, labels(), {.label_smoothing = smoothing, .weight = full({3}, 0.5)});
        EXPECT_NEAR(equal.item(), plain.item(), 1e-14);
        backward(plain), backward(equal);
        expect_near(y.grad(), x.grad().to_vector<double>(), 1e-14);
        const Tensor hard =
            cross_entropy(x, cast(one_hot(Tensor::from(std::vector<std::int64_t>{2, 1, 0, 1}, {4}), 3), Dtype::f64));
        EXPECT_NEAR(hard.item(), cross_entropy(x, Tensor::from(std::vector<std::int64_t>{2, 1, 0, 1}, {4})).item(),
                    1e-14);
    }
}

TEST(ClassLosses, WithWeightsNeverReadIgnoredRows) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const double smoothing : {0.0, 0.1})
        for (const double bad : {inf, -inf, std::nan("")}) {
            const Tensor x = Tensor::from(Values{bad, bad, 1, 2}, {2, 2}).set_requires_grad();
            const Tensor target = Tensor::from(std::vector<std::int64_t>{255, 0}, {2});
            const Tensor loss = cross_entropy(x, target, {Reduction::mean, 255, smoothing, ones({2})});
            EXPECT_TRUE(std::isfinite(loss.item()));
            backward(loss);
            const Values slopes = x.grad().to_vector<double>();
            EXPECT_EQ(slopes[0], 0);
            EXPECT_EQ(slopes[1], 0);
            EXPECT_NE(slopes[2], 0);
        }
    const Tensor none = cross_entropy(logits(), full({4}, -100, Dtype::i64), {.weight = weight()});
    EXPECT_TRUE(std::isnan(none.item()));  // a mean of nothing
}

TEST(ClassLosses, RunInFp32UnderAutocastWithWeightsToo) {
    const Autocast autocast(Dtype::f16);
    const Tensor x = logits(Dtype::f16);
    EXPECT_EQ(cross_entropy(x, labels(), {.weight = weight()}).dtype(), Dtype::f32);
    EXPECT_EQ(cross_entropy(x, cast(probabilities(), Dtype::f16)).dtype(), Dtype::f32);
    expect_near(cross_entropy(x, labels(), {.label_smoothing = 0.1, .weight = weight()}), {0.680918636613049}, 1e-6);
}

TEST(Embedding, LeavesThePaddingRowAtZeroAndWithoutAGradient) {
    for (const std::int64_t row : {1, -2}) {
        invar::Embedding layer(3, 4, row);
        const Values before = layer.weight.value.to_vector<double>();
        for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == 0, i / 4 == 1) << i;
        const Tensor ids = Tensor::from(std::vector<std::int64_t>{0, 1, 1, 2}, {2, 2});
        backward(layer.forward(ids), full({2, 2, 4}, 3));
        const Values slopes = layer.weight.value.grad().to_vector<double>();
        for (std::size_t i = 0; i < slopes.size(); ++i) EXPECT_EQ(slopes[i], i / 4 == 1 ? 0 : 3) << i;
        // What the row gets from elsewhere stays; a clone has the same padding.
        const Tensor tied = layer.weight.value;
        backward(sum(tied));
        backward(layer.forward(ids), full({2, 2, 4}, std::nan("")));
        EXPECT_EQ(tied.grad().to_vector<double>()[4], 1);
        const auto other = layer.clone();
        backward(other->forward(ids), full({2, 2, 4}, 3));
        EXPECT_EQ(dynamic_cast<invar::Embedding&>(*other).weight.value.grad().to_vector<double>()[4], 0);
    }
    EXPECT_ERROR(invar::Embedding(3, 4, 3), UsageError, "Embedding: padding_idx 3 is outside 3 rows");
    EXPECT_ERROR(invar::Embedding(3, 4, -4), UsageError, "padding_idx -4");
}

}  // namespace
}  // namespace invar::testing
