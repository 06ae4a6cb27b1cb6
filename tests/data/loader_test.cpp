#include "invar/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>

#include "files.h"
#include "invar/data/image_set.h"
#include "invar/data/synthetic.h"

namespace invar {

using namespace testing;

namespace {

// A sample's value and label are its number. Keeps count of what was read, and can be told to fail or to be slow.
class Numbers final : public Dataset {
  public:
    explicit Numbers(std::int64_t size) : size_(size) {}
    std::string name() const override { return "numbers"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{1, 2, 1}, size_}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        Batch batch = image_batch(std::int64_t(indices.size()), {1, 2, 1});
        float* x = batch["x"].data<float>();
        std::int64_t* y = batch["y"].data<std::int64_t>();
        if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(indices[0] % 3));
        for (const std::int64_t index : indices) {
            ++samples_read;
            check<IoError>(index != fails_at, "sample {} cannot be read", index);
            *x++ = float(index);
            *x++ = -float(index);
            *y++ = index;
        }
        return batch;
    }

    mutable std::atomic<int> samples_read = 0;
    std::int64_t fails_at = -1;
    bool slow = false;

  private:
    std::int64_t size_;
};

using Labels = std::vector<std::vector<std::int64_t>>;

Labels drain(Loader& loader) {
    Labels all;
    while (auto batch = loader.next()) {
        EXPECT_EQ(batch->size, (*batch)["y"].numel());
        all.push_back((*batch)["y"].to_vector<std::int64_t>());
    }
    return all;
}

Labels epoch_of(Loader& loader, std::int64_t epoch, std::int64_t skip = 0) {
    loader.start_epoch(epoch, skip);
    return drain(loader);
}

LoaderOptions options_of(std::int64_t batch, int workers) {
    LoaderOptions options;
    options.batch_size = batch, options.num_workers = workers, options.seed = 5;
    return options;
}

}  // namespace

class LoaderWith : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, LoaderWith, ::testing::Values(0, 1, 3));

TEST_P(LoaderWith, DeliversEverySampleOnceAnEpoch) {
    Loader loader(std::make_shared<Numbers>(103), options_of(10, GetParam()));
    EXPECT_EQ(loader.batches_per_epoch(), 11);
    EXPECT_EQ(loader.samples_per_epoch(), 103);
    for (int epoch = 0; epoch < 3; ++epoch) {
        const Labels batches = epoch_of(loader, epoch);
        ASSERT_EQ(batches.size(), 11u);
        EXPECT_EQ(batches.back().size(), 3u);
        std::set<std::int64_t> seen;
        for (const auto& batch : batches) seen.insert(batch.begin(), batch.end());
        EXPECT_EQ(seen.size(), 103u);
    }
}

TEST_P(LoaderWith, GivesTheSameBytesWhateverTheNumberOfWorkers) {
    const SyntheticOptions small{.size = 97, .height = 6, .width = 6};
    const auto dataset = std::make_shared<SyntheticDataset>(small, Split::train);
    Loader plain(dataset, options_of(8, 0)), loader(dataset, options_of(8, GetParam()));
    for (int epoch = 0; epoch < 2; ++epoch) {
        plain.start_epoch(epoch);
        loader.start_epoch(epoch);
        while (auto expected = plain.next()) {
            const auto batch = loader.next();
            ASSERT_TRUE(batch);
            ASSERT_EQ((*batch)["x"].shape(), (*expected)["x"].shape());
            EXPECT_EQ(std::memcmp((*batch)["x"].raw(), (*expected)["x"].raw(), (*expected)["x"].bytes()), 0);
            EXPECT_EQ(std::memcmp((*batch)["y"].raw(), (*expected)["y"].raw(), (*expected)["y"].bytes()), 0);
        }
        EXPECT_FALSE(loader.next());
        EXPECT_FALSE(loader.next());
    }
}

TEST_P(LoaderWith, KeepsTheOrderWhenReadsTakeUnequalTime) {
    auto dataset = std::make_shared<Numbers>(60);
    dataset->slow = true;
    LoaderOptions options = options_of(2, GetParam());
    options.shuffle = false;
    Loader loader(dataset, options);
    std::int64_t expected = 0;
    for (const auto& batch : epoch_of(loader, 0)) {
        for (const std::int64_t label : batch) EXPECT_EQ(label, expected++);
    }
    EXPECT_EQ(expected, 60);
}

TEST_P(LoaderWith, ResumesAtAnyPositionWithTheSameBatchesAndReadsNothingItSkips) {
    const auto whole = [&] {
        Loader loader(std::make_shared<Numbers>(50), options_of(8, 0));
        return epoch_of(loader, 4);
    }();
    for (std::int64_t skip = 0; skip <= 7; ++skip) {
        auto dataset = std::make_shared<Numbers>(50);
        Loader loader(dataset, options_of(8, GetParam()));
        EXPECT_EQ(epoch_of(loader, 4, skip), Labels(whole.begin() + skip, whole.end()));
        EXPECT_EQ(dataset->samples_read, std::max<std::int64_t>(0, 50 - 8 * skip));
    }
}

TEST_P(LoaderWith, SaysWhereItStandsSoThatAnotherCanGoOn) {
    auto dataset = std::make_shared<Numbers>(40);
    Loader loader(dataset, options_of(8, GetParam()));
    loader.start_epoch(2);
    loader.next();
    loader.next();
    EXPECT_EQ(loader.epoch(), 2);
    EXPECT_EQ(loader.position(), 2);
    Loader other(dataset, options_of(8, GetParam()));
    const Labels rest = epoch_of(other, loader.epoch(), loader.position());
    EXPECT_EQ(rest.size(), 3u);
    EXPECT_EQ(rest, drain(loader));
    EXPECT_EQ(loader.position(), 5);
}

// Epochs that follow each other have the same batches, whether one of them was left early or not.
TEST_P(LoaderWith, ReadsOnIntoTheEpochThatFollows) {
    for (const int prefetch : {1, 4, 5, 40}) {
        LoaderOptions options = options_of(8, GetParam());
        options.prefetch = prefetch;
        Loader plain(std::make_shared<Numbers>(50), options_of(8, 0)), loader(std::make_shared<Numbers>(50), options);
        for (const std::int64_t epoch : {3, 4, 5, 9, 10, 10, 11}) {
            plain.start_epoch(epoch);
            loader.start_epoch(epoch, 0, true);
            while (auto expected = plain.next()) {
                const auto batch = loader.next();
                ASSERT_TRUE(batch);
                ASSERT_EQ((*batch)["y"].to_vector<std::int64_t>(), (*expected)["y"].to_vector<std::int64_t>())
                    << prefetch << ", epoch " << epoch;
                if (epoch == 5 && loader.position() == 3) break;
            }
        }
        EXPECT_EQ(epoch_of(loader, 12, 2), epoch_of(plain, 12, 2)) << "behind the first two";
    }
}

TEST(Loader, HasReadTheNextEpochsFirstBatchesWhenItBegins) {
    auto dataset = std::make_shared<Numbers>(20);
    LoaderOptions options = options_of(2, 2);
    options.prefetch = 4;
    Loader loader(dataset, options);
    loader.start_epoch(0, 0, true);
    drain(loader);
    while (dataset->samples_read < 28) std::this_thread::yield();
    loader.start_epoch(1);
    EXPECT_EQ(drain(loader).size(), 10u);
    EXPECT_EQ(dataset->samples_read, 40) << "none is read twice, and none of a third epoch";
}

TEST_P(LoaderWith, StartsAnotherEpochInTheMiddleOfOne) {
    auto dataset = std::make_shared<Numbers>(64);
    dataset->slow = true;
    Loader loader(dataset, options_of(4, GetParam())), plain(dataset, options_of(4, 0));
    for (int i = 0; i < 5; ++i) {
        loader.start_epoch(i);
        plain.start_epoch(i);
        for (int n = 0; n < i; ++n) {
            EXPECT_EQ((*loader.next())["y"].to_vector<std::int64_t>(), (*plain.next())["y"].to_vector<std::int64_t>());
        }
    }
}

TEST_P(LoaderWith, HandsOnWhatAReadThrewAfterTheBatchesBeforeIt) {
    auto dataset = std::make_shared<Numbers>(40);
    dataset->fails_at = 25;
    LoaderOptions options = options_of(10, GetParam());
    options.shuffle = false;
    Loader loader(dataset, options);
    loader.start_epoch(0);
    EXPECT_EQ((*loader.next())["y"].to_vector<std::int64_t>()[0], 0);
    EXPECT_EQ((*loader.next())["y"].to_vector<std::int64_t>()[0], 10);
    for (int i = 0; i < 2; ++i) expect_error<IoError>([&] { loader.next(); }, {"sample 25 cannot be read"});
    EXPECT_EQ(loader.position(), 2);
    loader.start_epoch(0, 3);
    EXPECT_EQ(drain(loader).size(), 1u);
}

TEST_P(LoaderWith, CanBeDestroyedAtAnyMoment) {
    auto dataset = std::make_shared<Numbers>(200);
    dataset->slow = true;
    for (int taken = -2; taken < 12; ++taken) {
        Loader loader(dataset, options_of(4, GetParam()));
        if (taken == -2) continue;
        loader.start_epoch(0);
        for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
    }
    dataset->fails_at = 0;
    LoaderOptions options = options_of(4, GetParam());
    options.shuffle = false;
    Loader failing(dataset, options);
    failing.start_epoch(0);
    EXPECT_THROW(failing.next(), IoError);
}

TEST_P(LoaderWith, GivesBatchesThatOutliveIt) {
    std::optional<Batch> batch;
    {
        Loader loader(std::make_shared<Numbers>(8), options_of(8, GetParam()));
        loader.start_epoch(0);
        batch = loader.next();
    }
    const auto labels = (*batch)["y"].to_vector<std::int64_t>();
    EXPECT_EQ(std::accumulate(labels.begin(), labels.end(), std::int64_t(0)), 28);
}

TEST_P(LoaderWith, StopsAtItsLimit) {
    LoaderOptions options = options_of(10, GetParam());
    options.limit = 3;
    auto dataset = std::make_shared<Numbers>(100);
    Loader loader(dataset, options);
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    EXPECT_EQ(epoch_of(loader, 0).size(), 3u);
    EXPECT_EQ(dataset->samples_read, 30);
    options.limit = 0;
    Loader nothing(dataset, options);
    EXPECT_TRUE(epoch_of(nothing, 0).empty());
    options.limit = 1000;
    EXPECT_EQ(Loader(dataset, options).batches_per_epoch(), 10);
}

TEST(Loader, DropsALastBatchThatIsNotFullWhenAsked) {
    LoaderOptions options = options_of(10, 1);
    options.drop_last = true;
    Loader loader(std::make_shared<Numbers>(29), options);
    EXPECT_EQ(loader.batches_per_epoch(), 2);
    EXPECT_EQ(loader.samples_per_epoch(), 20);
    for (const auto& batch : epoch_of(loader, 0)) EXPECT_EQ(batch.size(), 10u);
}

TEST(Loader, MakesOneShortBatchOfTooFewSamplesUnlessThatIsToBeDropped) {
    LoaderOptions options = options_of(10, 1);
    Loader loader(std::make_shared<Numbers>(7), options);
    EXPECT_EQ(loader.batches_per_epoch(), 1);
    EXPECT_EQ(epoch_of(loader, 0).at(0).size(), 7u);
    options.drop_last = true;
    expect_error<UsageError>([&] { Loader(std::make_shared<Numbers>(7), options); },
                             {"data.batch_size=10", "7 samples", "data.drop_last"});
}

TEST(Loader, OrderIsAFunctionOfSeedAndEpochAlone) {
    const auto order = shuffled_order(1000, 1, 0);
    EXPECT_EQ(order, shuffled_order(1000, 1, 0));
    EXPECT_NE(order, shuffled_order(1000, 1, 1));
    EXPECT_NE(order, shuffled_order(1000, 2, 0));
    auto dataset = std::make_shared<Numbers>(100);
    Loader forward(dataset, options_of(100, 1)), backward(dataset, options_of(100, 1));
    const Labels zero = epoch_of(forward, 0), one = epoch_of(forward, 1);
    EXPECT_EQ(epoch_of(backward, 1), one);
    EXPECT_EQ(epoch_of(backward, 0), zero);
    EXPECT_EQ(zero[0], shuffled_order(100, 5, 0));
}

TEST(Loader, ShufflesWithoutPreference) {
    // Each of 4 samples should come first in about a quarter of 4,000 epochs: 1,000, give or take 27.
    std::vector<int> first(4);
    for (int epoch = 0; epoch < 4000; ++epoch) ++first[std::size_t(shuffled_order(4, 9, epoch)[0])];
    for (const int count : first) EXPECT_NEAR(count, 1000, 5 * 27.4);
}

TEST(Loader, ReadsNoFurtherAheadThanItsQueue) {
    auto dataset = std::make_shared<Numbers>(100);
    LoaderOptions options = options_of(1, 3);
    options.prefetch = 5;
    Loader loader(dataset, options);
    loader.start_epoch(0);
    for (int i = 0; i < 20; ++i) {
        loader.next();
        EXPECT_LE(dataset->samples_read, i + 1 + 5);
    }
    while (dataset->samples_read < 25) std::this_thread::yield();  // it does use the whole queue
}

TEST(Loader, RefusesMisuse) {
    auto dataset = std::make_shared<Numbers>(10);
    const auto make = [&](auto change) {
        LoaderOptions options = options_of(5, 1);
        change(options);
        Loader loader(dataset, options);
    };
    expect_error<UsageError>([&] { make([](auto& o) { o.batch_size = 0; }); }, {"batch_size is 0"});
    expect_error<UsageError>([&] { make([](auto& o) { o.num_workers = -1; }); }, {"num_workers is -1"});
    expect_error<UsageError>([&] { make([](auto& o) { o.prefetch = 0; }); }, {"prefetch is 0"});
    expect_error<UsageError>([] { Loader loader(nullptr, {}); }, {"no data set"});
    Loader loader(dataset, options_of(5, 1));
    expect_error<UsageError>([&] { loader.next(); }, {"start_epoch"});
    expect_error<UsageError>([&] { loader.start_epoch(-1); }, {"-1"});
    expect_error<UsageError>([&] { loader.start_epoch(0, 3); }, {"3", "epoch of 2"});
}

}  // namespace invar
