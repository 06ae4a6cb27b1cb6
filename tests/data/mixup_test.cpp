#include "invar/data/mixup.h"

#include <gtest/gtest.h>

#include "invar/data/image_set.h"
#include "invar/data/loader.h"
#include "invar/data/synthetic.h"
#include "tests/data/files.h"

namespace invar {
namespace {

using testing::expect_error;

Batch pair_of(float a, float b) {
    return Batch({{"x", Tensor::from<float>({a, a, b, b}, {2, 2})}, {"y", Tensor::from<std::int64_t>({2, 0}, {2})}}, 2);
}

ImageSet ramps(std::int64_t count) {
    ImageSet set;
    set.height = set.width = 6, set.channels = 1, set.classes = 3;
    set.pixels = testing::counting(std::size_t(36 * count), 1);
    for (std::int64_t i = 0; i < count; ++i) set.labels.push_back(std::uint8_t(i % 3));
    return set;
}

}  // namespace

TEST(Mixup, MixesSamplesAndTheirClassesByOneShare) {
    Batch batch = pair_of(0, 1);
    mix_pairs(batch, {1.0, 3}, 5, 0, 0);
    const auto x = batch["x"].to_vector<float>(), targets = batch["targets"].to_vector<float>();
    const float share = targets[2];
    EXPECT_TRUE(share > 0 && share < 1);
    EXPECT_NEAR(x[0], 1 - share, 1e-6);
    EXPECT_NEAR(x[3], share, 1e-6);
    for (const int i : {0, 5}) EXPECT_NEAR(targets[std::size_t(i)], 1 - share, 1e-6);
    EXPECT_EQ(targets[1], 0);
    EXPECT_EQ(targets[3], share);
    EXPECT_EQ(batch["y"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 0}));
}

TEST(Mixup, DrawsSharesFromABetaDistribution) {
    for (const double alpha : {0.2, 1.0, 4.0}) {
        double sum = 0, squares = 0;
        constexpr int kDraws = 4000;
        for (int i = 0; i < kDraws; ++i) {
            Batch batch = pair_of(0, 1);
            mix_pairs(batch, {alpha, 3}, 1, 0, i);
            const double share = batch["targets"].to_vector<float>()[2];
            ASSERT_TRUE(share >= 0 && share <= 1);
            sum += share, squares += share * share;
        }
        const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
        EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
        EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
    }
}

TEST(Mixup, FollowsSeedEpochAndBatchWhateverTheWorkers) {
    const auto data =
        std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 20, .height = 4, .width = 4}, Split::train);
    LoaderOptions options;
    options.batch_size = 4, options.mixup = 0.4, options.seed = 3;
    const auto epoch_of = [&](int workers, std::int64_t epoch, std::int64_t skip) {
        options.num_workers = workers;
        Loader loader(data, options);
        loader.start_epoch(epoch, skip);
        std::vector<std::vector<float>> all;
        while (const auto batch = loader.next()) all.push_back((*batch)["targets"].to_vector<float>());
        return all;
    };
    const auto targets = epoch_of(1, 2, 0);
    EXPECT_EQ(epoch_of(4, 2, 0), targets);
    EXPECT_EQ(epoch_of(0, 2, 3), (std::vector<std::vector<float>>(targets.begin() + 3, targets.end())));
    EXPECT_NE(epoch_of(1, 3, 0), targets);
}

TEST(Mixup, RefusesWhatHasNoClasses) {
    Batch numbers({{"x", Tensor::from<float>({1, 2}, {2, 1})}, {"y", Tensor::from<float>({1, 2}, {2, 1})}}, 2);
    expect_error<UsageError>([&] { mix_pairs(numbers, {0.2, 1}, 0, 0, 0); }, {"data.mixup"});
    Batch tokens({{"x", Tensor::from<std::int64_t>({1, 2}, {2, 1})}, {"y", Tensor::from<std::int64_t>({1, 2}, {2})}},
                 2);
    expect_error<UsageError>([&] { mix_pairs(tokens, {0.2, 3}, 0, 0, 0); }, {"data.mixup", "i64"});
}

TEST(ImageAugment, MovesAndFlipsByEpochAndOnlyToTrain) {
    const ImageOptions options{.augment = "crop_flip", .pad = 2};
    EXPECT_FALSE(augment_of(options, Split::test, 1).any());
    const ImageDataset data("d", ramps(8), 0, 1, augment_of(options, Split::train, 1));
    const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto plain = data.read(all)["x"].to_vector<float>();
    const auto first = data.read_for({0, false}, all)["x"].to_vector<float>();
    EXPECT_NE(first, plain);
    EXPECT_EQ(data.read_for({0, false}, all)["x"].to_vector<float>(), first);
    EXPECT_NE(data.read_for({1, false}, all)["x"].to_vector<float>(), first);
    // Each row is a row of the image, moved by at most two and black where it has come in.
    int flipped = 0;
    for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
        const std::vector<std::int64_t> one = {0};
        const auto x = data.read_for({epoch, true}, one)["x"].to_vector<std::uint8_t>();
        const int middle = x[2 * 6 + 2], next = x[2 * 6 + 3];
        ASSERT_EQ(std::abs(next - middle), 1);
        flipped += next < middle;
        const int row = (middle - 1) / 6, column = (middle - 1) % 6;
        EXPECT_LE(std::abs(row - 2), 2);
        EXPECT_LE(std::abs(column - (next < middle ? 3 : 2)), 2);
    }
    EXPECT_TRUE(flipped > 8 && flipped < 32);
}

TEST(ImageAugment, ABatchOfBytesBecomesTheSameNumbers) {
    const ImageDataset data("d", ramps(5), 0.3, 0.25);
    const std::vector<std::int64_t> all = {4, 0, 2};
    const Tensor bytes = data.read_for({0, true}, all)["x"];
    ASSERT_EQ(bytes.dtype(), Dtype::u8);
    const auto expected = data.read(all)["x"].to_vector<float>();
    const auto made = DevicePixels(*data.pixels(), Device::cpu()).numbers(bytes).to_vector<float>();
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], expected[i], 4e-7);
}

}  // namespace invar
