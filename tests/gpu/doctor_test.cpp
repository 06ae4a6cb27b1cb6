// What `invar doctor` says of the card at hand: every format right against f64, to bounds that follow from the format.
#include "invar/diagnose/doctor.h"

#include "tests/gpu/fixture.h"

namespace invar {
namespace {

class GpuDoctor : public testing::OnGpu<::testing::Test> {};

TEST_F(GpuDoctor, FindsTheCardSound) {
    for (const std::uint64_t seed : {0, 1, 2}) {
        const DeviceHealth card = examine(Device::cuda(), {.seed = seed, .speed = false});
        EXPECT_TRUE(card.memory.ok()) << card.memory.problem;
        EXPECT_GE(card.formats.size(), 4u);
        for (const FormatHealth& format : card.formats)
            for (const FormatHealth::Check& check : format.checks()) {
                const std::optional<WorstElement>& worst = check.values.worst;
                EXPECT_TRUE(check.values.ok())
                    << format.format << " " << check.name << ", seed " << seed << ": " << check.values.wrong << " wrong "
                    << (worst ? worst->operation + " " + worst->shapes : "") << check.values.problem;
            }
    }
}

}  // namespace
}  // namespace invar
