#include "invar/data/synthetic.h"

#include <numeric>

#include "files.h"
#include "invar/image/encode.h"

namespace invar {

namespace {

SyntheticOptions small_options() {
    return {.size = 500, .height = 8, .width = 6, .channels = 3, .classes = 7};
}

std::shared_ptr<const Dataset> open(const SyntheticOptions& options, Split split, std::uint64_t seed = 11) {
    return std::make_shared<SyntheticDataset>(options, split, seed);
}

struct Samples {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    std::int64_t width = 0;
};

Samples all_of(const SyntheticOptions& options, Split split, std::uint64_t seed = 11) {
    const auto dataset = open(options, split, seed);
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
    const auto train = open(small_options(), Split::train);
    EXPECT_EQ(train->size(), 500);
    EXPECT_EQ(train->info().input, (Shape{8, 6, 3}));
    EXPECT_EQ(train->info().outputs, 7);
    EXPECT_EQ(open(small_options(), Split::test)->size(), 100);
}

TEST(Synthetic, IsTheSameForTheSameSeedAndAnotherForAnother) {
    const SyntheticOptions options = small_options();
    const Samples once = all_of(options, Split::train), again = all_of(options, Split::train);
    EXPECT_EQ(once.x, again.x);
    EXPECT_EQ(once.y, again.y);
    EXPECT_NE(once.x, all_of(options, Split::train, 12).x);
}

TEST(Synthetic, MakesASampleWithoutTheOnesBefore) {
    const auto dataset = open(small_options(), Split::train);
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
        const SyntheticOptions options{.size = 1000};
        EXPECT_GT(nearest_mean_accuracy(all_of(options, Split::train, seed), all_of(options, Split::test, seed), 10),
                  0.99);
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

// Other sets of images take a file's image as a whole, in their own size and colours.
TEST(Synthetic, SeesAFileAsAnImageOfItsSize) {
    const SyntheticDataset grey({.size = 10, .height = 6, .width = 8, .channels = 1}, Split::test);
    Image image(12, 16, 3, 255);
    for (std::int64_t y = 0; y < 12; ++y)
        for (std::int64_t x = 0; x < 8; ++x) std::fill_n(image.at(y, x), 3, std::uint8_t(0));
    const std::string file = encode_png(image);
    const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
    const std::optional<SeenImage> seen = grey.see(bytes, "half.png");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->x.shape(), (Shape{1, 6, 8, 1}));
    const std::vector<float> x = seen->x.to_vector<float>();
    EXPECT_EQ(x[0], -1) << "black by mean and std of 0.5";
    EXPECT_EQ(x[7], 1);
    EXPECT_EQ(seen->box.width, 16);
    EXPECT_FALSE(SyntheticDataset({.size = 10, .channels = 2}, Split::test).see(bytes, "half.png"));
}

}  // namespace invar
