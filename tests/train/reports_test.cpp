#include "invar/train/reports.h"

#include <gtest/gtest.h>

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
        end.reports = reports.slots();
        kernels_for({}).conclude(end, Tensor::scalar(loss).view());
    }
    Reports& reports;
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

TEST(Reports, NeedRoom) {
    EXPECT_ERROR(Reports(Device::cpu(), 0), UsageError, "room");
}

}  // namespace
}  // namespace invar
