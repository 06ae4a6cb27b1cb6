#include "invar/train/reports.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

// The end of a step as training_step() has it.
struct Steps {
    explicit Steps(Reports& reports) : reports(reports) {}
    void end(double loss, bool skipped = false) {
        state.skip = skipped;
        StepEnd end;
        end.state = &state;
        end.scale = &scale;
        end.updates_scale = true;
        end.scaler.enabled = true;
        end.scaler.min_scale = min_scale;
        end.reports = reports.slots();
        end.reports.halt = halt;
        kernels_for({}).conclude(end, Tensor::scalar(loss).view());
    }
    Reports& reports;
    HaltSpec halt;
    float min_scale = 0;
    StepState state;
    ScaleState scale{.scale = 1024};
};

TEST(Reports, SayWhatTheStepFound) {
    Reports reports{Device::cpu()};
    Steps steps(reports);
    EXPECT_FALSE(reports.poll());
    steps.end(0.5);
    steps.end(2.5, true);
    const StepReport first = reports.wait(), second = *reports.poll();
    EXPECT_EQ(first.loss, 0.5);
    EXPECT_EQ(first.step.taken, 1);
    EXPECT_EQ(first.scale.scale, 1024);
    EXPECT_EQ(first.scale.growth_tracker, 1);
    EXPECT_EQ(second.loss, 2.5);
    EXPECT_EQ(second.step.skipped, 1);
    EXPECT_EQ(second.scale.scale, 512) << "as it is after the update";
    EXPECT_FALSE(reports.poll());
}

TEST(Reports, SayWhenTheStepEndedHoweverLateTheyAreRead) {
    Reports reports{Device::cpu()};
    Steps steps(reports);
    steps.end(1.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    steps.end(2.0);
    const StepReport first = *reports.poll(), second = *reports.poll();
    EXPECT_GE(second.ended_ns - first.ended_ns, 5'000'000u);
}

TEST(Reports, ComeInOrderAroundTheRing) {
    Reports reports(Device::cpu(), 3);
    Steps steps(reports);
    double next = 0, heard = 0;
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i <= round % 3; ++i) steps.end(next++);
        while (const std::optional<StepReport> report = reports.poll()) {
            EXPECT_EQ(report->loss, heard++);
            EXPECT_EQ(report->sequence, std::uint64_t(heard));
        }
    }
    EXPECT_EQ(heard, next);
}

TEST(Reports, AreWaitedFor) {
    Reports reports{Device::cpu()};
    Steps steps(reports);
    std::jthread device([&] { steps.end(3.0); });
    device.join();
    EXPECT_EQ(reports.wait().loss, 3.0);
    EXPECT_ERROR(reports.wait(), Error, "no report of step 2 came");
}

// The host may be many steps ahead: what those would change waits for it.
TEST(Halting, LeavesEverythingAsTheBadStepDid) {
    struct Case {
        HaltSpec halt;
        double loss;
        int skipped;  // in a row, the last one halts
        float min_scale;
    };
    for (const Case& c : {Case{{true, false, 0}, NAN, 1, 0}, Case{{true, false, 0}, -INFINITY, 1, 0},
                          Case{{false, false, 3}, 1.0, 3, 0}, Case{{false, true, 0}, 1.0, 1, 1024}}) {
        Reports reports{Device::cpu()};
        Steps steps(reports);
        steps.halt = c.halt;
        steps.min_scale = c.min_scale;
        steps.end(1.0);
        EXPECT_FALSE(steps.state.halted);
        for (int i = 0; i < c.skipped; ++i) {
            EXPECT_FALSE(steps.state.halted) << i;
            steps.end(c.loss, true);
        }
        EXPECT_TRUE(steps.state.halted);
        const StepState then = steps.state;
        const float scale = steps.scale.scale;
        plan_step(steps.state, 1.0f, {}, {});
        EXPECT_TRUE(steps.state.skip) << "whatever its gradients";
        steps.end(1.0, true);
        EXPECT_EQ(steps.state.skipped, then.skipped);
        EXPECT_EQ(steps.state.taken, 1);
        EXPECT_EQ(steps.scale.scale, scale);
    }
    Reports reports{Device::cpu()};
    Steps steps(reports);
    for (int i = 0; i < 200; ++i) steps.end(NAN, true);
    EXPECT_FALSE(steps.state.halted) << "not where nobody asked for it";
}

TEST(Reports, NeedRoom) {
    EXPECT_ERROR(Reports(Device::cpu(), 0), UsageError, "room");
}

}  // namespace
}  // namespace invar
