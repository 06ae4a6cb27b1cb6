// A preflight among ranks that are threads: clocks that differ, sums that are wrong, memory that does not do.
#include "invar/diagnose/preflight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "invar/data/registry.h"
#include "invar/data/synthetic.h"
#include "invar/diagnose/preflight_parts.h"
#include "invar/models/models.h"
#include "invar/ops/ops.h"
#include "tests/dist/thread_ranks.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config small() {
    Config config;
    config.trainer.device = "cpu";
    config.trainer.threads = 1;
    config.data.choose("synthetic", SyntheticOptions{.size = 40, .height = 4, .width = 4, .channels = 1, .classes = 4});
    config.data.batch_size = 8;
    config.model.choose("mlp", MlpOptions{.hidden = {8}});
    config.output_dir = "/tmp";
    return config;
}

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As all ranks see it; they must see the same.
Preflight among(int size, const std::function<PreflightOptions(int rank)>& options,
                const std::function<std::unique_ptr<Communicator>(Communicator&)>& around = {}) {
    std::vector<Preflight> found(static_cast<std::size_t>(size));
    as_ranks(size, [&](Communicator& ranks) {
        const std::unique_ptr<Communicator> other = around ? around(ranks) : nullptr;
        found[std::size_t(ranks.rank())] = preflight(other ? *other : ranks, options(ranks.rank()));
    });
    for (const Preflight& each : found) {
        EXPECT_EQ(each.problems.size(), found[0].problems.size());
        EXPECT_EQ(each.mark(), found[0].mark());
    }
    return found[0];
}

// The sums that one rank gets are wrong.
class WrongSums final : public Communicator {
  public:
    WrongSums(Communicator& ranks, int wrong) : ranks_(ranks), wrong_(wrong) {}
    int rank() const override { return ranks_.rank(); }
    int size() const override { return ranks_.size(); }
    std::string name() const override { return ranks_.name(); }
    void all_gather(const void* mine, void* all, std::size_t bytes) override { ranks_.all_gather(mine, all, bytes); }
    void broadcast(void* data, std::size_t bytes, int root) override { ranks_.broadcast(data, bytes, root); }
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, ReduceFinding* finding) override {
        ranks_.wait(ranks_.reduce_scatter(whole, share, wire, finding));
        if (rank() == wrong_) share.data<float>()[share.numel() - 1] += 1;
        return 0;
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override { return ranks_.all_gather(share, whole); }
    void wait(Ticket ticket) override { ranks_.wait(ticket); }

  private:
    Communicator& ranks_;
    int wrong_;
};

TEST(Preflight, PassesWhereAllIsWell) {
    const Preflight found = among(3, [](int) { return PreflightOptions{small()}; });
    EXPECT_EQ(found.mark(), Mark::pass) << found.problems[0].text;
    ASSERT_EQ(found.ranks.size(), 3u);
    EXPECT_EQ(found.ranks[2].train_samples, 40);
    EXPECT_GT(found.ranks[2].memory_needed, 0);
    EXPECT_GE(found.ranks[2].disk_needed, 4 * 3 * (17 * 8 + 9 * 4)) << "weights and Adam's two moments";
    ASSERT_EQ(found.speeds.size(), 3u);
    EXPECT_GT(found.speeds[2].bytes, found.speeds[0].bytes);
}

TEST(Preflight, WarnsOfClocksThatDiffer) {
    const Preflight found = among(3, [](int rank) {
        return PreflightOptions{.config = small(), .wall_clock = [rank] { return now() - (rank == 2 ? 600 : 0); }};
    });
    EXPECT_EQ(found.mark(), Mark::warn);
    ASSERT_EQ(found.problems.size(), 1u);
    EXPECT_EQ(found.problems[0].rank, 2);
    EXPECT_EQ(found.problems[0].text.substr(0, 13), "its clock is ");
    EXPECT_NE(found.problems[0].text.find("behind that of rank 0"), std::string::npos);
    EXPECT_NEAR(found.ranks[2].clock_offset, -600, 1 + found.clock_error);
    EXPECT_NEAR(found.ranks[1].clock_offset, 0, 1 + found.clock_error);
}

TEST(Preflight, FailsWhereASumIsWrong) {
    for (const int wrong : {0, 1}) {
        const Preflight found = among(
            2, [](int) { return PreflightOptions{small()}; },
            [&](Communicator& ranks) { return std::make_unique<WrongSums>(ranks, wrong); });
        ASSERT_NE(found.first_failure(), nullptr);
        EXPECT_EQ(found.first_failure()->rank, wrong);
        EXPECT_EQ(found.first_failure()->what, "exchange");
        EXPECT_NE(found.first_failure()->text.find("a sum over the ranks gave "), std::string::npos);
    }
}

TEST(Preflight, TellsSpeedsInBytesASecond) {
    const Preflight found = among(2, [](int) { return PreflightOptions{small()}; });
    constexpr double kHour = 3600;  // no exchange takes that long
    ASSERT_FALSE(found.speeds.empty());
    for (const ExchangeSpeed& speed : found.speeds)
        for (const double rate : {speed.reduce_scatter, speed.all_gather})
            EXPECT_GT(rate * kHour, double(speed.bytes) / 2) << "half of it is sent to the other rank";
}

TEST(Preflight, CountsTheMemoryOfTheLargestPartOfABatch) {
    const auto needed = [](std::int64_t batch, int ranks) {
        Config config = small();
        config.data.batch_size = batch;
        config.model.choose("mlp", MlpOptions{.hidden = {1024}});
        return look_around(config, 0, ranks).facts.memory_needed;
    };
    EXPECT_EQ(needed(1025, 2), needed(1026, 2)) << "513 samples for one of them";
    EXPECT_GT(needed(1025, 2), needed(1024, 2));
}

// Keeps the largest number of samples that anybody has asked for at once.
struct SparingOptions {};
class Sparing final : public Dataset {
  public:
    std::string name() const override { return "sparing"; }
    std::int64_t size() const override { return 200; }
    DataInfo info() const override { return {{4, 4, 1}, 4}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        most = std::max(most, n);
        return Batch({{"x", ops::zeros({n, 4, 4, 1})}, {"y", ops::zeros({n}, Dtype::i64)}}, n);
    }
    static inline std::int64_t most = 0;
};
const RegisterData<SparingOptions> kSparing{
    "sparing", "Counts what is read of it.",
    [](const SparingOptions&, Split, std::uint64_t) { return std::make_shared<Sparing>(); }};

TEST(Preflight, ReadsAFewSamplesHoweverLargeABatchIs) {
    Config config = small();
    config.data.choose("sparing");
    config.data.batch_size = 100;
    Sparing::most = 0;
    const OwnFindings found = look_around(config, 0, 1);
    EXPECT_TRUE(found.problems.empty()) << found.problems[0].text;
    EXPECT_EQ(found.facts.train_samples, 200);
    EXPECT_GT(Sparing::most, 0);
    EXPECT_LE(Sparing::most, 8);
}

TEST(Preflight, LooksForRoomInTheNearestFolderThatIsThere) {
    const ScratchFolder scratch;
    EXPECT_EQ(nearest_folder(scratch.path()), scratch.path());
    EXPECT_EQ(nearest_folder(scratch.path() / "runs/of/today"), scratch.path());
    EXPECT_EQ(nearest_folder("/no_such_folder_here/runs"), "/");
}

TEST(Preflight, FailsWhereOneRankHasOtherData) {
    const Preflight found = among(2, [](int rank) {
        Config config = small();
        if (rank == 1) config.data.as<SyntheticOptions>().size = 48;
        return PreflightOptions{config};
    });
    std::vector<std::string> what;
    for (const Problem& problem : found.problems) {
        EXPECT_EQ(problem.rank, 1);
        what.push_back(problem.what);
    }
    EXPECT_EQ(what.front(), "configuration");
    EXPECT_NE(std::ranges::find(what, "data"), what.end());
}

TEST(Preflight, FailsWhereMemoryDoesNotDo) {
    const Preflight found = among(2, [](int) {
        Config config = small();
        config.data.batch_size = 1 << 24;
        config.model.choose("mlp", MlpOptions{.hidden = {1 << 14}});
        return PreflightOptions{config};
    });
    ASSERT_NE(found.first_failure(), nullptr);
    EXPECT_EQ(found.first_failure()->what, "memory");
    EXPECT_NE(found.first_failure()->text.find("2 ranks on it need "), std::string::npos)
        << found.first_failure()->text;
}

}  // namespace
}  // namespace invar
