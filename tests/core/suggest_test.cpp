#include "invar/core/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace invar {
namespace {

const std::vector<std::string> kKeys = {"max_epochs", "max_steps", "precision", "lr"};

TEST(Nearest, FindsTheWordAFewSlipsAway) {
    EXPECT_EQ(nearest("max_epoch", kKeys), "max_epochs");
    EXPECT_EQ(nearest("max_setps", kKeys), "max_steps");
    EXPECT_EQ(nearest("PRECISON", kKeys), "precision");
    EXPECT_EQ(nearest("rl", kKeys), "lr");
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
    EXPECT_EQ(nearest("wandb", kKeys), "");
    EXPECT_EQ(nearest("", kKeys), "");
    EXPECT_EQ(nearest("xy", kKeys), "");
    EXPECT_EQ(nearest("x", std::vector<std::string>{}), "");
}

TEST(Nearest, TakesWordsOfAnyLength) {
    EXPECT_EQ(nearest(std::string(1 << 20, 'a'), kKeys), "");
}

TEST(DidYouMean, IsReadyForAMessage) {
    EXPECT_EQ(did_you_mean("max_epoch", kKeys), " (did you mean 'max_epochs'?)");
    EXPECT_EQ(did_you_mean("wandb", kKeys), "");
}

}  // namespace
}  // namespace invar
