#include "invar/core/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace invar {
namespace {

TEST(Print, ShowsValuesAsPeopleWriteThem) {
    EXPECT_EQ(to_string(Tensor::from<float>({1, -2.5f, 0, NAN}, {2, 2})),
              "[[ 1.0000, -2.5000],\n [ 0.0000,     nan]] f32[2, 2] on cpu");
    EXPECT_EQ(to_string(Tensor::scalar(3)), "3. f32[] on cpu");
    EXPECT_EQ(to_string(Tensor::from<float>({1, 2, -INFINITY}, {3})), "[  1.,   2., -inf] f32[3] on cpu");
    EXPECT_EQ(to_string(Tensor::from<float>({1e-6f, 2}, {2})), "[1.0000e-06, 2.0000e+00] f32[2] on cpu");
    EXPECT_EQ(to_string(Tensor()), "undefined tensor");
    EXPECT_EQ(to_string(Tensor::empty({0, 3})), "[] f32[0, 3] on cpu");
}

TEST(Print, ShowsIntegersToTheLastDigit) {
    EXPECT_EQ(to_string(Tensor::from<std::int64_t>({(std::int64_t(1) << 53) + 1, -1}, {2})),
              "[9007199254740993,               -1] i64[2] on cpu");
    EXPECT_EQ(to_string(Tensor::from<float>({0, 1}, {2}, Dtype::boolean)), "[false,  true] bool[2] on cpu");
}

TEST(Print, ShortensWhatIsLong) {
    std::vector<float> values(2000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    EXPECT_EQ(to_string(Tensor::from(values, {2000})),
              "[   0.,    1.,    2., ..., 1997., 1998., 1999.] f32[2000] on cpu");
    const std::string square = to_string(Tensor::from(values, {40, 50}));
    EXPECT_NE(square.find("...,\n"), std::string::npos) << square;
}

TEST(Print, FollowsStrides) {
    const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
    EXPECT_EQ(to_string(x.as_strided(0, {3, 2}, {1, 3})), "[[1., 4.],\n [2., 5.],\n [3., 6.]] f32[3, 2] on cpu");
    EXPECT_EQ(to_string(x.window(3, {3})), "[4., 5., 6.] f32[3] on cpu");
}

TEST(Print, GoesIntoStreams) {
    std::ostringstream out;
    out << Tensor::scalar(2.5);
    EXPECT_EQ(out.str(), "2.5000 f32[] on cpu");
}

}  // namespace
}  // namespace invar
