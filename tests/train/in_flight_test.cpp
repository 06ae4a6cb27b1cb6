// The clock of a run, by what the device says of when its steps ended.
#include "invar/train/in_flight.h"

#include <gtest/gtest.h>

#include "invar/ops/ops.h"
#include "tests/dist/thread_ranks.h"

namespace invar {
namespace {

// Steps on eight samples that end when a test says so, in seconds of the device's clock.
struct Steps {
    ReportedStep end_at(double seconds) {
        report(seconds);
        return in_flight.wait();
    }
    void report(double seconds) {
        const Batch batch({{"x", ops::zeros({8, 1})}}, 8);
        in_flight.add({std::int64_t(++count) - 1, 0, 0}, {&batch, 1});
        StepEnd end;
        end.reports = in_flight.slots();
        StepReport* const report = conclude_step(end, 1.0, std::uint64_t(1e9 * seconds));
        report->sequence = count;
    }
    InFlight in_flight{Device::cpu()};
    std::uint64_t count = 0;
};

TEST(InFlight, TakesTheTimeBetweenStepsFromTheDevicesClock) {
    Steps steps;
    const ReportedStep first = steps.end_at(100), second = steps.end_at(102.5), third = steps.end_at(103);
    EXPECT_NEAR(second.seconds - first.seconds, 2.5, 1e-6);
    EXPECT_NEAR(third.seconds - second.seconds, 0.5, 1e-6);
}

TEST(InFlight, RatesStepsByTheSamplesSinceItWasLastAsked) {
    Steps steps;
    const ReportedStep first = steps.end_at(100);
    EXPECT_EQ(first.seconds, 0.0) << "the clock was never started";
    EXPECT_EQ(steps.in_flight.rate_until(first), 0.0) << "no time has passed";
    steps.end_at(101);
    const ReportedStep third = steps.end_at(104);
    EXPECT_NEAR(steps.in_flight.rate_until(third), 16 / 4.0, 1e-6);
    EXPECT_EQ(steps.in_flight.rate_until(third), 0.0) << "nothing since";
}

// A report that was read late makes those behind it seem to come from the future.
TEST(InFlight, HasASpeedWhereTheHostWasBehindTheDevice) {
    Steps steps;
    steps.in_flight.start_clock();
    for (int i = 0; i < 5; ++i) steps.in_flight.rate_until(steps.end_at(100 + i));
    steps.in_flight.stop_clock();
    steps.in_flight.start_clock();
    const ReportedStep next = steps.end_at(200);
    steps.in_flight.stop_clock();
    EXPECT_GT(steps.in_flight.speed({}).samples_per_s, 0.0);
    EXPECT_GT(steps.in_flight.rate_until(next), 0.0);
}

// Devices are not equally far, and what follows from a report is decided by all ranks after the same step.
TEST(InFlight, CountsTheReportsThatEveryRankHas) {
    as_ranks(3, [](Communicator& ranks) {
        Steps steps;
        EXPECT_EQ(steps.in_flight.ready_everywhere(ranks), 0u);
        for (int i = 0; i < 4 - ranks.rank(); ++i) steps.report(100 + i);
        EXPECT_EQ(steps.in_flight.ready(), std::size_t(4 - ranks.rank()));
        ASSERT_EQ(steps.in_flight.ready_everywhere(ranks), 2u) << "of the last rank, which has the fewest";
        for (int i = 0; i < 2; ++i) EXPECT_EQ(steps.in_flight.wait().step(), i + 1);
        EXPECT_EQ(steps.in_flight.ready_everywhere(ranks), 0u);
    });
}

// A ring that is full and was gone round has no more reports than room.
TEST(InFlight, CountsNoReportTwice) {
    Steps steps;
    const std::size_t room = steps.in_flight.slots().count;
    for (std::size_t i = 0; i < room + 3; ++i) steps.end_at(double(i));
    EXPECT_EQ(steps.in_flight.ready(), 0u);
    for (std::size_t i = 0; i < room; ++i) steps.report(double(room + i));
    EXPECT_TRUE(steps.in_flight.full());
    EXPECT_EQ(steps.in_flight.ready(), room);
}

}  // namespace
}  // namespace invar
