#include "invar/amp/autocast.h"

#include <gtest/gtest.h>

#include <thread>

#include "invar/core/error.h"

namespace invar {
namespace {

TEST(GlobalPolicy, IsWhatAPlainAutocastRunsInAndBelongsToItsThread) {
    set_global_policy("mixed_float16");
    EXPECT_EQ(global_policy().name(), "16-mixed");
    {
        const Autocast cast;
        EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::low);
        EXPECT_EQ(Autocast::current().low, Dtype::f16);
        std::thread([] {
            EXPECT_EQ(global_policy().name(), "32-true");
            EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::off);
        }).join();
    }
    EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::off);
    set_global_policy("float32");
    const Autocast cast;
    EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::fp32);
}

TEST(GlobalPolicy, RefusesANameItDoesNotKnowAndKeepsTheOldOne) {
    set_global_policy("mixed_bfloat16");
    EXPECT_THROW(set_global_policy("mixed_float17"), UsageError);
    EXPECT_EQ(global_policy().name(), "bf16-mixed");
    set_global_policy("float32");
}

TEST(Autocast, RestoresWhatSurroundedItAlsoWhenARegionThrows) {
    const Autocast outer(Dtype::bf16);
    try {
        const Autocast inner(Autocast::fp32());
        EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::fp32);
        fail("out of the region");
    } catch (const Error&) {
    }
    EXPECT_EQ(Autocast::current().mode, CastPolicy::Mode::low);
    EXPECT_EQ(Autocast::current().low, Dtype::bf16);
}

}  // namespace
}  // namespace invar
