// Tensors that have addresses and no memory: those that others hold, and those that their first reader fills.
#include "invar/core/promised.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

Fill counting_to(std::atomic<int>& fills) {
    return [&fills](const Tensor& out) {
        ++fills;
        for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = float(i);
    };
}

TEST(PromisedTensor, SaysWhyItIsNotThere) {
    const Tensor promised = promised_tensor({4, 4}, Dtype::f32, {}, "rank 3 has it");
    EXPECT_EQ(promised.shape(), Shape({4, 4}));
    EXPECT_FALSE(is_deferred(promised));
    EXPECT_ERROR((void)promised.raw(), UsageError, "rank 3 has it");
    EXPECT_ERROR((void)promised.window(4, {4}).view(), UsageError, "rank 3 has it");
}

TEST(DeferredTensor, IsFilledByItsFirstReaderOnce) {
    std::atomic<int> fills = 0;
    const Tensor deferred = deferred_tensor({3000}, Dtype::f32, counting_to(fills));
    EXPECT_TRUE(is_deferred(deferred));
    EXPECT_EQ(fills, 0);
    EXPECT_EQ(deferred.window(2990, {10}).to_vector<float>()[9], 2999);
    EXPECT_FALSE(is_deferred(deferred));
    EXPECT_EQ(deferred.data<float>()[7], 7);
    deferred.data<float>()[7] = -1;
    EXPECT_EQ(settled(deferred).data<float>()[7], -1) << "one that has been read is itself";
    EXPECT_EQ(fills, 1);
}

TEST(DeferredTensor, SettlesAsideAndStaysAsItIs) {
    std::atomic<int> fills = 0;
    const Tensor deferred = deferred_tensor({50, 60}, Dtype::f32, counting_to(fills));
    const std::int64_t before = memory_stats({}).live[int(Purpose::workspace)];
    {
        const Tensor aside = settled(deferred);
        EXPECT_EQ(aside.shape(), deferred.shape());
        EXPECT_EQ(aside.data<float>()[2999], 2999);
        EXPECT_GE(memory_stats({}).live[int(Purpose::workspace)] - before, 12000) << "it is counted";
        EXPECT_EQ(settled(deferred.window(60, {60})).data<float>()[0], 60);
    }
    EXPECT_EQ(memory_stats({}).live[int(Purpose::workspace)], before);
    EXPECT_TRUE(is_deferred(deferred));
    EXPECT_EQ(fills, 2);
}

TEST(DeferredTensor, IsWholeForEveryThreadThatReadsIt) {
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> fills = 0, wrong = 0;
        const Tensor deferred = deferred_tensor({100000}, Dtype::f32, counting_to(fills));
        std::vector<std::thread> readers;
        for (int i = 0; i < 4; ++i) readers.emplace_back([&] { wrong += deferred.data<float>()[99999] != 99999; });
        for (std::thread& reader : readers) reader.join();
        EXPECT_EQ(fills, 1);
        EXPECT_EQ(wrong, 0);
    }
}

}  // namespace
}  // namespace invar
