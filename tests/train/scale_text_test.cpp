// Loss scales as people read them.
#include "invar/train/scale_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace invar {
namespace {

TEST(ScaleText, WritesLargePowersOfTwoAsPowers) {
    EXPECT_EQ(scale_text(1), "1");
    EXPECT_EQ(scale_text(65536), "65536");
    EXPECT_EQ(scale_text(0x1p24), "2^24");
    EXPECT_EQ(scale_text(0x1p-10), "2^-10");
    EXPECT_EQ(scale_text(0.5), "0.5");
}

TEST(ScaleText, NeverWritesMoreThanSixDigits) {
    EXPECT_EQ(scale_text(12345678), "1.23457e+07");
    EXPECT_EQ(scale_text(std::numeric_limits<float>::max()), "3.40282e+38");
    EXPECT_EQ(scale_text(-std::nan("")), "nan");
    EXPECT_EQ(scale_text(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace invar
