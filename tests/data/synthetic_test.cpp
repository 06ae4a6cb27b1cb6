#include "invar/data/synthetic.h"

#include <numeric>

#include "files.h"

namespace invar {

namespace {

DatasetOptions small_options() {
    DatasetOptions options;
    options.size = 500, options.height = 8, options.width = 6, options.channels = 3, options.classes = 7;
    options.seed = 11;
    return options;
}

struct Samples {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    std::int64_t width = 0;
};

Samples all_of(const DatasetOptions& options, Split split) {
    const auto dataset = make_dataset(options, split);
    std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset->size()));
    std::iota(indices.begin(), indices.end(), std::int64_t(0));
    const Batch batch = dataset->read(indices);
    return {batch["x"].to_vector<float>(), batch["y"].to_vector<std::int64_t>(), dataset->info().input.numel()};
}

// How many of `test` lie nearest to the mean of their own class in `train`.
double nearest_mean_accuracy(const Samples& train, const Samples& test, std::int64_t classes) {
    const std::size_t width = std::size_t(train.width);
    std::vector<double> mean(std::size_t(classes) * width), count(static_cast<std::size_t>(classes));
    for (std::size_t n = 0; n < train.y.size(); ++n) {
        const std::size_t k = std::size_t(train.y[n]);
        count[k] += 1;
        for (std::size_t i = 0; i < width; ++i) mean[k * width + i] += train.x[n * width + i];
    }
    std::size_t right = 0;
    for (std::size_t n = 0; n < test.y.size(); ++n) {
        std::size_t best = 0;
        double least = 1e300;
        for (std::size_t k = 0; k < count.size(); ++k) {
            double distance = 0;
            for (std::size_t i = 0; i < width; ++i) {
                const double d = test.x[n * width + i] - mean[k * width + i] / count[k];
                distance += d * d;
            }
            if (distance < least) least = distance, best = k;
        }
        right += best == std::size_t(test.y[n]);
    }
    return double(right) / double(test.y.size());
}

}  // namespace

TEST(Synthetic, HasTheSizesAskedFor) {
    const auto train = make_dataset(small_options(), Split::train);
    EXPECT_EQ(train->size(), 500);
    EXPECT_EQ(train->info().input, (Shape{8, 6, 3}));
    EXPECT_EQ(train->info().outputs, 7);
    EXPECT_EQ(make_dataset(small_options(), Split::test)->size(), 100);
}

TEST(Synthetic, IsTheSameForTheSameSeedAndAnotherForAnother) {
    DatasetOptions options = small_options();
    const Samples once = all_of(options, Split::train), again = all_of(options, Split::train);
    EXPECT_EQ(once.x, again.x);
    EXPECT_EQ(once.y, again.y);
    options.seed = 12;
    EXPECT_NE(once.x, all_of(options, Split::train).x);
}

TEST(Synthetic, MakesASampleWithoutTheOnesBefore) {
    const auto dataset = make_dataset(small_options(), Split::train);
    const Samples all = all_of(small_options(), Split::train);
    const std::vector<std::int64_t> one = {321};
    const Batch batch = dataset->read(one);
    const auto begin = all.x.begin() + 321 * all.width;
    EXPECT_EQ(batch["x"].to_vector<float>(), std::vector<float>(begin, begin + all.width));
    EXPECT_EQ(batch["y"].item(), double(all.y[321]));
}

TEST(Synthetic, SharesPatternsBetweenSplitsButNoSample) {
    const Samples train = all_of(small_options(), Split::train), test = all_of(small_options(), Split::test);
    EXPECT_NE(std::vector<float>(train.x.begin(), train.x.begin() + train.width),
              std::vector<float>(test.x.begin(), test.x.begin() + test.width));
    EXPECT_GT(nearest_mean_accuracy(train, test, 7), 0.97);
}

TEST(Synthetic, CanBeLearntAtTheDefaultSizeWithAnySeed) {
    for (const std::uint64_t seed : {0, 1, 2}) {
        DatasetOptions options;
        options.size = 1000, options.seed = seed;
        EXPECT_GT(nearest_mean_accuracy(all_of(options, Split::train), all_of(options, Split::test), 10), 0.99);
    }
}

TEST(Synthetic, NoiseIsWideEnoughThatSamplesOfAClassDiffer) {
    const Samples all = all_of(small_options(), Split::train);
    double difference = 0;
    for (std::int64_t i = 0; i < all.width; ++i) {
        const double d = double(all.x[std::size_t(i)]) - double(all.x[std::size_t(7 * all.width + i)]);
        difference += d * d;
    }
    ASSERT_EQ(all.y[0], all.y[7]);
    EXPECT_GT(difference / double(all.width), 0.05);
}

}  // namespace invar
