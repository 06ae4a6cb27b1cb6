#include "invar/kernels/attention.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(AttentionDropout, SaysOfEightWeightsWhatItSaysOfEach) {
    const RngState rng{5, 1000};
    for (const double p : {0.0, 0.1, 0.5, 0.99}) {
        const DropRule rule(p);
        for (std::uint64_t place = 0; place < 200; ++place) {
            const std::uint32_t kept = kept_eight(rule, rng, place);
            for (std::uint64_t i = 0; i < 8; ++i)
                ASSERT_EQ((kept >> i & 1u) != 0, kept_share(rule, rng, place + i) != 0)
                    << p << ", " << place << ", " << i;
            ASSERT_LT(kept, 256u);
        }
    }
}

}  // namespace
}  // namespace invar
