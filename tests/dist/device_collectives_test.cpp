#include "invar/dist/device_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "invar/core/formats.h"
#include "invar/dist/rank_sum.h"
#include "tests/dist/thread_ranks.h"

namespace invar {
namespace {

class Variable {
  public:
    Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
};

TEST(RankSum, RoundsAsTheFormatDoes) {
    for (const float value : {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, -3.3e38f, 3.4e38f, 1e-40f, -3e-45f,
                              std::numeric_limits<float>::infinity()}) {
        EXPECT_EQ(to_bf16_bits(value), bf16(value).bits) << value;
        EXPECT_EQ(from_bf16_bits(to_bf16_bits(value)), float(bf16(value))) << value;
    }
    EXPECT_TRUE(std::isnan(from_bf16_bits(to_bf16_bits(std::bit_cast<float>(0x7f800001u)))));
    EXPECT_TRUE(is_bad(std::nanf("")));
    EXPECT_TRUE(is_bad(-std::numeric_limits<float>::infinity()));
    EXPECT_FALSE(is_bad(std::numeric_limits<float>::max()));
}

TEST(FindingKey, IsLeastForTheFirst) {
    const std::uint64_t first = FindingKey::of(0, 70'000'000'000, 1234);
    EXPECT_EQ(FindingKey::place(first), 70'000'000'000);
    EXPECT_EQ(FindingKey::rank(first), 1234);
    EXPECT_LT(FindingKey::of(0, 69'999'999'999, 5000), first);
    EXPECT_LT(first, FindingKey::of(1, 0, 0)) << "an earlier sum comes first";
    EXPECT_EQ(FindingKey::rank(FindingKey::of(3, 17, -1)), -1) << "nobody's part";
    EXPECT_EQ(FindingKey::place(FindingKey::of(300, 17, -1)), 17);
    EXPECT_LT(FindingKey::of(300, (std::int64_t(1) << 40) - 1, FindingKey::kMaxRanks - 1), FindingKey::kNone);
    EXPECT_EQ(FindingKey::place(FindingKey::kNone), -1);
    EXPECT_EQ(FindingKey::rank(FindingKey::kNone), -1);
}

TEST(Agreement, AddsUpInRankOrderAndKeepsTheFirst) {
    const std::vector<SharePiece> pieces = {{100, 10, 0}, {500, 20, 10}};
    StepState found;
    found.sum_squares = 0.1, found.max_abs = 3, found.nonfinite = 2, found.first_nonfinite = 12;
    const RankFindings one = findings_of(found, 1.5, 7, pieces.data(), 2);
    EXPECT_EQ(one.first, 502);
    EXPECT_EQ(flat_place(9, pieces.data(), 2), 109);
    EXPECT_EQ(flat_place(30, pieces.data(), 2), -1);
    found.sum_squares = 0.2, found.max_abs = 5, found.nonfinite = 1, found.first_nonfinite = 4;
    const RankFindings two = findings_of(found, 0.25, 3, pieces.data(), 2);
    StepState clean;
    clean.sum_squares = 0.3;
    const RankFindings three = findings_of(clean, 0.5, -1, pieces.data(), 2);
    EXPECT_EQ(three.first, -1);

    const std::vector<RankFindings> all = {one, two, three};
    StepState state;
    state.taken = 9;
    EXPECT_EQ(agree_on(all.data(), 3, state), 2.25);
    EXPECT_EQ(state.sum_squares, 0.1 + 0.2 + 0.3);
    EXPECT_EQ(state.max_abs, 5);
    EXPECT_EQ(state.nonfinite, 3);
    EXPECT_EQ(state.first_nonfinite, 104);
    EXPECT_EQ(state.bad_rank, 3);
    EXPECT_EQ(state.taken, 9);

    std::vector<RankFindings> bad_losses = all;
    bad_losses[1].bad_loss = bad_losses[2].bad_loss = 1;
    agree_on(bad_losses.data(), 3, state);
    EXPECT_EQ(state.bad_loss, 1);
    EXPECT_EQ(state.bad_rank, 1) << "a loss is told of before a gradient";
}

TEST(DeviceCollectives, AreNotLookedForWhereNoRankHasAGpu) {
    as_ranks(2, [](Communicator& ranks) {
        ranks.prepare(Device::cpu());
        EXPECT_EQ(ranks.name(), "threads");
        EXPECT_EQ(ranks.device_collectives(Device::cpu()), nullptr);
    });
}

TEST(DeviceCollectives, SayWhyTensorsGoByTheHost) {
    const Variable none("INVAR_NCCL_LIBRARY", "none");
    as_ranks(2, [](Communicator& ranks) {
        ranks.prepare(Device::cuda());
        ranks.prepare(Device::cuda());  // was decided
        EXPECT_EQ(ranks.name(),
                  "threads, tensors of GPUs by way of the host: rank 0 is without NCCL, INVAR_NCCL_LIBRARY is none");
        EXPECT_EQ(ranks.device_collectives(Device::cuda()), nullptr);
    });
    as_ranks(2, [](Communicator& ranks) {
        ranks.prepare(ranks.rank() == 0 ? Device::cpu() : Device::cuda());
        EXPECT_EQ(ranks.name(), "threads, tensors of GPUs by way of the host: rank 0 is without NCCL, it has no GPU");
    });
}

TEST(DeviceCollectives, SayThatTheLibraryIsMissing) {
    const Variable nowhere("INVAR_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    const bool built = std::filesystem::exists(INVAR_BINARY_DIR "/lib/libinvar_nccl.so");
    as_ranks(2, [&](Communicator& ranks) {
        ranks.prepare(Device::cuda());
        EXPECT_NE(ranks.name().find("rank 0 is without NCCL, "), std::string::npos) << ranks.name();
        EXPECT_NE(ranks.name().find(built ? "/nowhere/libnccl.so.2: cannot open" : "built without NCCL"),
                  std::string::npos)
            << ranks.name();
        EXPECT_EQ(std::ranges::count(ranks.name(), '\n'), 0);
    });
}

}  // namespace
}  // namespace invar
