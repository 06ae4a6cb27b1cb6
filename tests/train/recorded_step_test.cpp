// What a recording rests on is said by those who read it: a whole step on the CPU, with everything about it that can
// change.
#include "invar/train/recorded_step.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/kernels/dry/dry_run.h"
#include "invar/train/setup.h"
#include "invar/train/step.h"
#include "tests/dist/thread_ranks.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

TEST(HostSide, KnowsWhetherWhatWasReadIsStillTheSame) {
    int value = 1, repeated = 0, undone = 0;
    HostSide host;
    EXPECT_EQ(HostSide::current(), nullptr);
    {
        const HostSide::Scope scope(host);
        HostSide::current()->depends_on([&] { return value; });
        HostSide::current()->repeat([&] { ++repeated; });
        HostSide::current()->undo([&] { ++undone; });
    }
    EXPECT_EQ(HostSide::current(), nullptr);
    EXPECT_TRUE(host.unchanged());
    value = 2;
    EXPECT_FALSE(host.unchanged());
    value = 1;
    EXPECT_TRUE(host.unchanged());
    host.replay(), host.replay(), host.roll_back();
    EXPECT_EQ(repeated, 2);
    EXPECT_EQ(undone, 1);
}

class RecordedReads : public testing::Test {
  protected:
    RecordedReads() {
        Config config = small_config(scratch_.path());
        config.trainer.precision = "16-mixed";
        setup_.emplace(config);
        setup_->model->train();
        setup_->train_data->start_epoch(0);
        const Batch batch = *setup_->train_data->next();
        const HostSide::Scope scope(host_);
        step_function (*setup_)({&batch, 1});
    }
    ScratchFolder scratch_;
    std::optional<invar::Setup> setup_;
    HostSide host_;
};

TEST_F(RecordedReads, AreThoseOfTheStepAndNothingElse) {
    EXPECT_TRUE(host_.unchanged());
    evaluate(*setup_->task, *setup_->model, *setup_->test_data, setup_->precision);  // and back to training
    setup_->scaler->set_scale(2);                                                    // lies on the device
    EXPECT_TRUE(host_.unchanged());
}

TEST_F(RecordedReads, NoticeEverythingThatAStepGoesBy) {
    const auto noticed = [&](const char* what, const auto& change, const auto& back) {
        change();
        EXPECT_FALSE(host_.unchanged()) << what;
        back();
        EXPECT_TRUE(host_.unchanged()) << what;
    };
    Module& model = *setup_->model;
    Module& layer = *model.modules().back().second;
    Optimizer& optimizer = *setup_->optimizer;
    OptimizerSpec& group = optimizer.groups()[0];
    Tensor& weight = optimizer.store().parameters()[0]->value;
    const double rate = group.lr;
    const ScheduleSpec schedule = optimizer.schedule();
    const ScalerSpec spec = setup_->scaler->spec();
    ScheduleSpec cosine = schedule;
    cosine.kind = ScheduleSpec::Kind::cosine;
    ScalerSpec patient = spec;
    patient.growth_interval = 7;
    noticed(
        "the mode", [&] { model.eval(); }, [&] { model.train(); });
    noticed(
        "the mode of one layer", [&] { layer.eval(); }, [&] { layer.train(); });
    noticed(
        "a precision", [&] { layer.set_precision(Precision()); }, [&] { layer.set_precision({}); });
    noticed(
        "a frozen weight", [&] { weight.set_requires_grad(false); }, [&] { weight.set_requires_grad(true); });
    noticed(
        "a rate", [&] { group.lr = 2 * rate; }, [&] { group.lr = rate; });
    noticed(
        "a schedule", [&] { optimizer.set_schedule(cosine); }, [&] { optimizer.set_schedule(schedule); });
    noticed(
        "the scaler",
        [&] {
            setup_->scaler->configure({1024, patient});
        },
        [&] {
            setup_->scaler->configure({1024, spec});
        });
    optimizer.store().set_shadow(std::nullopt);
    EXPECT_FALSE(host_.unchanged()) << "the copy of the weights";
}

TEST_F(RecordedReads, RepeatWhatTheHostKeepsBooksOn) {
    const ParameterStore& store = setup_->optimizer->store();
    const std::vector<bool> have = store.have_gradients();
    setup_->optimizer->zero_grad();
    EXPECT_NE(store.have_gradients(), have);
    const std::uint64_t before = store.weights().version();
    host_.replay();
    EXPECT_EQ(store.have_gradients(), have);
    EXPECT_GT(store.weights().version(), before) << "who saved the weights for a backward of his own must notice";
}

TEST(RecordedStep, RunsTheFunctionAsItIsOnACpu) {
    int calls = 0;
    RecordedStep step(Device::cpu(), [&](std::span<const Batch> group) {
        ++calls;
        return group[0]["x"];
    });
    const Batch batch({{"x", Tensor::scalar(3.0)}}, 1);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(batch).item(), 3.0);
    EXPECT_EQ(calls, 6);
    EXPECT_EQ(step.parts(), 0);
    EXPECT_TRUE(step.settled({&batch, 1}));
    EXPECT_EQ(step.why_not(), "a CPU has nothing to gain from it");
}

// What a rank's steps were, one letter each: (e)ager, (r)ecorded or replayed. On a device that computes nothing.
std::string steps_of(const std::vector<std::int64_t>& sizes, int cannot_record_at = -1, std::string* note = nullptr) {
    const dry::DryRun run(Device::cuda());
    int number = 0;
    const auto step = [&](std::span<const Batch> group) {
        check(HostSide::current() == nullptr || number != cannot_record_at, "a test cannot be recorded");
        kernels_for(Device::cuda()).fill(group[0]["x"].view(), 1);
        return group[0]["x"];
    };
    RecordedStep recorded(Device::cuda(), step, {true, [&](const std::string& text) {
                                                     if (note != nullptr) *note = text;
                                                 }});
    std::string steps;
    for (const std::int64_t size : sizes) {
        const Batch batch({{"x", Tensor::empty({size}, Dtype::f32, Device::cuda())}}, size);
        recorded(batch);
        steps += recorded.parts() > 0 ? 'r' : 'e';
        ++number;
    }
    return steps;
}

TEST(RecordedStepOfRanks, AreRecordedAndReplayedByAllOrByNone) {
    EXPECT_EQ(steps_of({4, 4, 4, 4, 4, 4}), "eeerrr");
    as_ranks(2, [](Communicator& ranks) {
        EXPECT_EQ(steps_of({4, 4, 4, 4, 4, 4}), "eeerrr");
        // One rank's batches have another shape now and then: it has nothing to replay there, so nobody does, until it
        // is ready to record and all do so anew. What they recorded apart is never replayed together.
        const std::vector<std::int64_t> mine = ranks.rank() == 0
                                                   ? std::vector<std::int64_t>{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}
                                                   : std::vector<std::int64_t>{4, 4, 4, 4, 3, 4, 3, 3, 3, 3, 4, 3};
        EXPECT_EQ(steps_of(mine), "eeerereerrer");
    });
}

TEST(RecordedStepOfRanks, RunOnWhereOneCannotRecord) {
    as_ranks(3, [](Communicator& ranks) {
        std::string note;
        EXPECT_EQ(steps_of({4, 4, 4, 4, 4, 4}, ranks.rank() == 1 ? 3 : -1, &note), "eeeeee");
        EXPECT_EQ(note, ranks.rank() == 1 ? "steps run without a CUDA graph: a test cannot be recorded"
                                          : "steps run without a CUDA graph: another rank cannot record it");
    });
}

}  // namespace
}  // namespace invar
