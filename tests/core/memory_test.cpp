// The allocator's books and its behaviour under pressure. Where it matters how much memory there is, a pretended
// device with a fixed budget stands in for a GPU.
#include "invar/core/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/memory_stand_in.h"
#include "invar/core/tensor.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

constexpr std::size_t kMiB = std::size_t(1) << 20;

std::int64_t live_of(const MemoryStats& stats, Purpose purpose) {
    return stats.live[static_cast<int>(purpose)];
}

class Memory : public ::testing::Test {
  protected:
    void SetUp() override {
        release_cached_memory(Device::cpu());
        reset_peak_memory(Device::cpu());
        before_ = memory_stats(Device::cpu());
    }
    void TearDown() override { EXPECT_EQ(memory_stats(Device::cpu()).live_total, before_.live_total) << "a leak"; }
    static MemoryStats now() { return memory_stats(Device::cpu()); }
    MemoryStats before_;
};

TEST_F(Memory, CountsLiveAndPeakBytesByPurpose) {
    {
        const Storage weights(1000, Device::cpu(), Purpose::weights);
        std::optional<Storage> workspace(std::in_place, 3000, Device::cpu(), Purpose::workspace);
        EXPECT_EQ(live_of(now(), Purpose::weights), live_of(before_, Purpose::weights) + 1000);
        EXPECT_EQ(now().live_total, before_.live_total + 4000);
        workspace.reset();
        EXPECT_EQ(live_of(now(), Purpose::workspace), live_of(before_, Purpose::workspace));
    }
    EXPECT_EQ(now().live_total, before_.live_total);
    EXPECT_EQ(now().peak_total, before_.live_total + 4000);
    EXPECT_EQ(now().peak_of(Purpose::weights), live_of(before_, Purpose::weights) + 1000);
    EXPECT_EQ(now().peak_of(Purpose::workspace), live_of(before_, Purpose::workspace) + 3000);
}

// What the kernel notes of the piece of address space that holds a place.
std::string flags_of(const void* place) {
    std::ifstream maps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<std::uintptr_t>(place);
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= wanted && wanted < end;
        if (here && line.starts_with("VmFlags:")) return line + " ";
    }
    return "";
}

TEST_F(Memory, AsksForLargePagesWhereABlockIsLarge) {
    const Storage large(8 * kMiB, Device::cpu(), Purpose::weights);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data()) % (2 * kMiB), 0u);
    if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled") || flags_of(large.data()).empty())
        GTEST_SKIP() << "this kernel has no large pages to ask for, or does not tell";
    EXPECT_NE(flags_of(large.data()).find(" hg "), std::string::npos) << flags_of(large.data());
}

TEST_F(Memory, PeakOfTheTotalIsNotTheSumOfPeaks) {
    { const Storage first(kMiB, Device::cpu(), Purpose::gradients); }
    { const Storage second(kMiB, Device::cpu(), Purpose::optimizer); }
    EXPECT_EQ(now().peak_total, before_.live_total + std::int64_t(kMiB));
}

TEST_F(Memory, ResettingThePeakBringsItDownToWhatLives) {
    const Storage kept(100, Device::cpu(), Purpose::data);
    { const Storage gone(kMiB, Device::cpu(), Purpose::data); }
    reset_peak_memory(Device::cpu());
    EXPECT_EQ(now().peak_total, before_.live_total + 100);
    EXPECT_EQ(now().peak_of(Purpose::data), live_of(before_, Purpose::data) + 100);
}

TEST_F(Memory, ReusesABlockOfTheSameSizeAndKeepsNoMoreThanItGave) {
    const void* first = nullptr;
    {
        const Storage block(kMiB, Device::cpu(), Purpose::activations);
        first = block.data();
    }
    const std::int64_t cached = now().cached;
    EXPECT_GE(cached, std::int64_t(kMiB));
    {
        const Storage again(kMiB, Device::cpu(), Purpose::workspace);
        EXPECT_EQ(again.data(), first);
        EXPECT_EQ(now().cached, cached - std::int64_t(kMiB));
    }
    EXPECT_EQ(now().cached, cached);
    release_cached_memory(Device::cpu());
    EXPECT_EQ(now().cached, 0);
}

TEST_F(Memory, DoesNotSpendALargeBlockOnASmallRequest) {
    { const Storage large(16 * kMiB, Device::cpu(), Purpose::activations); }
    const std::int64_t cached = now().cached;
    const Storage small(4096, Device::cpu(), Purpose::activations);
    EXPECT_EQ(now().cached, cached);
}

TEST_F(Memory, OfAPoolIsLentToNobodyElse) {
    MemoryPool pool(Device::cpu());
    const void* lent = nullptr;
    {
        const MemoryPool::Scope scope(pool);
        const Storage block(kMiB, Device::cpu(), Purpose::activations);
        lent = block.data();
    }
    const Storage outside(kMiB, Device::cpu(), Purpose::activations);
    EXPECT_NE(outside.data(), lent);
    EXPECT_EQ(now().cached, 0) << "what is freed in a pool is not free for all";
    const MemoryPool::Scope scope(pool);
    const Storage inside(kMiB, Device::cpu(), Purpose::activations);
    EXPECT_EQ(inside.data(), lent);
    const void* elsewhere = nullptr;
    std::thread([&] { elsewhere = Storage(kMiB, Device::cpu(), Purpose::data).data(); }).join();
    EXPECT_NE(elsewhere, lent);
}

// Counts what it has given and not got back.
struct Counted : RawMemory {
    explicit Counted(int& out) : out(out) {}
    void* allocate(std::size_t bytes) override {
        ++out;
        return std::aligned_alloc(64, bytes);
    }
    void free(void* data, std::size_t) override {
        --out;
        std::free(data);
    }
    int& out;
};

TEST_F(Memory, OfAPoolGoesBackWhereItCameFromAlsoWhenItOutlivesThePool) {
    int out = 0;
    std::optional<Tensor> kept;
    {
        MemoryPool pool(Device::cpu(), std::make_unique<Counted>(out));
        const MemoryPool::Scope scope(pool);
        kept = Tensor::empty({100});
        Tensor::empty({100000});
        EXPECT_EQ(out, 2);
    }
    EXPECT_EQ(out, 1) << "the one that nobody used";
    std::memset(kept->raw(), 1, kept->bytes());
    kept.reset();
    EXPECT_EQ(out, 0);
}

TEST_F(Memory, IsAlignedForTheWidestVectors) {
    for (const std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(513), kMiB - 1, kMiB, kMiB + 1}) {
        const Storage block(bytes, Device::cpu(), Purpose::workspace);
        EXPECT_NE(block.data(), nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0u) << bytes;
        std::memset(block.data(), 0xab, bytes);
    }
}

TEST_F(Memory, ZeroBytesAreAllowedAndCountNothing) {
    const Tensor empty = Tensor::empty({0, 3}), other = Tensor::empty({2, 0, 3});
    EXPECT_EQ(now().live_total, before_.live_total);
    EXPECT_NE(empty.raw(), other.raw());
    EXPECT_TRUE(empty.to_vector<float>().empty());
}

TEST_F(Memory, TensorsTakeThePurposeOfTheInnermostScope) {
    EXPECT_EQ(PurposeScope::current(), Purpose::activations);
    std::vector<Tensor> kept;
    {
        const PurposeScope outer(Purpose::weights);
        kept.push_back(Tensor::empty({10}));
        {
            const PurposeScope inner(Purpose::gradients);
            kept.push_back(Tensor::empty({20}));
        }
        kept.push_back(Tensor::empty({30}));
    }
    EXPECT_EQ(PurposeScope::current(), Purpose::activations);
    EXPECT_EQ(live_of(now(), Purpose::weights), live_of(before_, Purpose::weights) + 160);
    EXPECT_EQ(live_of(now(), Purpose::gradients), live_of(before_, Purpose::gradients) + 80);
    {
        // Freed under another purpose, it still leaves the account it was booked on.
        const PurposeScope other(Purpose::data);
        kept.clear();
    }
    EXPECT_EQ(now().live, before_.live);
}

TEST_F(Memory, AScopeEndsWithAnExceptionAndDoesNotReachOtherThreads) {
    try {
        const PurposeScope scope(Purpose::masters);
        Purpose elsewhere = Purpose::data;
        std::thread([&] { elsewhere = PurposeScope::current(); }).join();
        EXPECT_EQ(elsewhere, Purpose::activations);
        fail("leave");
    } catch (const Error&) {
    }
    EXPECT_EQ(PurposeScope::current(), Purpose::activations);
}

TEST_F(Memory, SurvivesManyThreadsWithoutHandingOneBlockToTwo) {
    constexpr int kThreads = 8, kRounds = 2000;
    std::vector<std::thread> threads;
    std::vector<int> torn(kThreads, 0);
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([t, &torn] {
            std::mt19937 random(static_cast<unsigned>(t));
            const PurposeScope scope(static_cast<Purpose>(t % kPurposes));
            std::vector<Tensor> mine;
            for (int i = 0; i < kRounds; ++i) {
                if (mine.size() < 16) {
                    Tensor tensor = Tensor::empty({std::int64_t(random() % 5000)}, Dtype::u8);
                    std::memset(tensor.raw(), t, tensor.bytes());
                    mine.push_back(tensor);
                } else {
                    const std::size_t victim = random() % mine.size();
                    const std::uint8_t* data = mine[victim].data<std::uint8_t>();
                    for (std::size_t b = 0; b < mine[victim].bytes(); ++b) torn[std::size_t(t)] += data[b] != t;
                    mine.erase(mine.begin() + std::ptrdiff_t(victim));
                }
                if (i % 500 == 0) release_cached_memory(Device::cpu());
                if (i % 700 == 0) reset_peak_memory(Device::cpu());
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(torn, std::vector<int>(kThreads, 0));
    EXPECT_EQ(now().live, before_.live);
}

TEST_F(Memory, NamesEveryPurpose) {
    EXPECT_EQ(name_of(Purpose::weights), "weights");
    EXPECT_EQ(name_of(Purpose::data), "data");
    for (int p = 0; p < kPurposes; ++p) EXPECT_FALSE(name_of(static_cast<Purpose>(p)).empty());
}

// ---- running out ----

class SmallDevice : public RawMemory {
  public:
    explicit SmallDevice(std::size_t budget) : left_(budget) {}
    void* allocate(std::size_t bytes) override {
        if (bytes > left_) return nullptr;
        left_ -= bytes;
        return ::operator new(bytes);
    }
    void free(void* data, std::size_t bytes) override {
        left_ += bytes;
        ::operator delete(data);
    }

  private:
    std::size_t left_;
};

// Registered once: storages of a device that was replaced would have nowhere to go back to.
Device small_device() {
    static const bool registered = [] {
        register_raw_memory(Device::Kind::cuda, std::make_unique<SmallDevice>(8 * kMiB));
        return true;
    }();
    static_cast<void>(registered);
    return Device::cuda();
}

TEST(OutOfMemory, SaysWhereHowMuchAndWhatToDo) {
    const Device device = small_device();
    {
        const Storage held(6 * kMiB, device, Purpose::weights);
        EXPECT_ERROR(Storage(4 * kMiB, device, Purpose::weights), Error,
                     "out of memory on cuda:0: 4194304 bytes asked for, 6291456 bytes in use (weights 6291456); for "
                     "weights use a smaller model");
        EXPECT_ERROR(Storage(4 * kMiB, device, Purpose::activations), Error, "for activations use a smaller batch");
        EXPECT_EQ(memory_stats(device).live_total, std::int64_t(6 * kMiB)) << "a failed request is not booked";
    }
    EXPECT_EQ(memory_stats(device).live_total, 0);
    release_cached_memory(device);
}

TEST(OutOfMemory, GivesBackWhatIsCachedBeforeGivingUp) {
    const Device device = small_device();
    { const Storage small(6 * kMiB, device, Purpose::weights); }
    EXPECT_EQ(memory_stats(device).cached, std::int64_t(6 * kMiB));
    EXPECT_NO_THROW(Storage(8 * kMiB, device, Purpose::weights));
    release_cached_memory(device);
}

TEST(OutOfMemory, ASizeThatWrapsAroundIsRefusedNotRoundedToNothing) {
    EXPECT_ERROR(Storage(std::numeric_limits<std::size_t>::max(), Device::cpu(), Purpose::workspace), Error,
                 "out of memory on cpu: 18446744073709551615 bytes");
    EXPECT_ERROR(Tensor::empty({(std::int64_t(1) << 61) + 1}, Dtype::f64), Error, "more bytes than fit in 63 bits");
    EXPECT_ERROR(Tensor::empty({std::int64_t(1) << 62}, Dtype::f32), Error, "f32[4611686018427387904]");
}

// Counts what it gives and gets back.
class CountingMemory : public RawMemory {
  public:
    explicit CountingMemory(int& blocks) : blocks_(blocks) {}
    void* allocate(std::size_t bytes) override { return ++blocks_, std::aligned_alloc(64, bytes); }
    void free(void* data, std::size_t) override { --blocks_, std::free(data); }

  private:
    int& blocks_;
};

TEST(MemoryStandIn, CountsByItselfUntilTheEndOfItsScope) {
    const MemoryStats before = memory_stats(Device::cpu());
    int blocks = 0;
    {
        const MemoryStandIn stand_in(Device::Kind::cpu, std::make_unique<CountingMemory>(blocks));
        EXPECT_EQ(memory_stats(Device::cpu()).live_total, 0);
        const Storage storage(1000, Device::cpu(), Purpose::weights);
        EXPECT_EQ(memory_stats(Device::cpu()).live_total, 1000);
        EXPECT_EQ(blocks, 1);
    }
    EXPECT_EQ(blocks, 0);
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before.live_total);
    EXPECT_EQ(memory_stats(Device::cpu()).peak_total, before.peak_total);
}

TEST(MemoryStandIn, GivesWhatOutlivesAScopeBackWhereItCameFrom) {
    const std::int64_t before = memory_stats(Device::cpu()).live_total;
    auto own = std::make_unique<Storage>(100, Device::cpu(), Purpose::data);
    std::unique_ptr<Storage> lent;
    static int blocks = 0;  // as long as memory that nobody gives back
    {
        const MemoryStandIn stand_in(Device::Kind::cpu, std::make_unique<CountingMemory>(blocks));
        own.reset();
        EXPECT_EQ(memory_stats(Device::cpu()).live_total, 0);
        lent = std::make_unique<Storage>(100, Device::cpu(), Purpose::data);
    }
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before);
    lent.reset();
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before);
}

}  // namespace
}  // namespace invar
