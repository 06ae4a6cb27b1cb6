// data=scene_text: rendered images through the same door as photographs.
#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/data/loader.h"
#include "invar/data/registry.h"
#include "invar/data/text_images.h"
#include "invar/scene/fonts.h"
#include "tests/data/files.h"

namespace invar {
namespace {

class SceneTextData : public ::testing::Test {
  protected:
    void SetUp() override {
        try {
            (void)scene::FontSet::train();
            (void)scene::FontSet::test();
        } catch (const Error& error) {
            GTEST_SKIP() << error.what();
        }
    }
    static Part small() {
        Part part("data", "scene_text");
        part.set("size", "256").set("scenes", "12").set("val_scenes", "3").set("max_words", "6");
        return part;
    }
};

std::vector<float> x_of(const Dataset& data, std::int64_t epoch, std::int64_t index) {
    return data.read_for({epoch, false}, std::span(&index, 1))["x"].to_vector<float>();
}

}  // namespace

TEST_F(SceneTextData, IsTheSameForTheSameSeedAndEpochAlone) {
    const auto train = open_data(small(), Split::train, 4), again = open_data(small(), Split::train, 4);
    const auto other = open_data(small(), Split::train, 5), test = open_data(small(), Split::test, 4);
    EXPECT_EQ(train->size(), 12);
    EXPECT_EQ(test->size(), 3);
    EXPECT_EQ(x_of(*train, 1, 7), x_of(*again, 1, 7));
    EXPECT_NE(x_of(*train, 1, 7), x_of(*train, 2, 7));
    EXPECT_NE(x_of(*train, 1, 7), x_of(*other, 1, 7));
    EXPECT_EQ(x_of(*test, 1, 2), x_of(*test, 2, 2));
    const std::int64_t first = 0;
    EXPECT_NE(train->read(std::span(&first, 1))["x"].to_vector<float>(), x_of(*test, 0, 0));
}

TEST_F(SceneTextData, FillsBatchesOfOneShapeFromSeveralThreads) {
    Part part = small();
    part.set("curved", "1").set("max_words", "16");
    LoaderOptions options;
    options.batch_size = 4, options.num_workers = 3;
    Loader loader(open_data(part, Split::train, 1), options);
    loader.start_epoch(0);
    std::size_t texts = 0;
    double drawn = 0;
    while (const std::optional<Batch> batch = loader.next()) {
        EXPECT_EQ((*batch)["polygons"].shape(), (Shape{4, 128, 32, 2}));
        for (const auto& in_image : texts_of(*batch)) texts += in_image.size();
        for (const float value : (*batch)["shrink"].to_vector<float>()) drawn += double(value);
    }
    EXPECT_GT(texts, 12u);
    EXPECT_GT(drawn, 100);
}

TEST_F(SceneTextData, RefusesOptionsThatMakeNoSense) {
    Part part = small();
    part.set("min_words", "9").set("max_words", "3");
    testing::expect_error<UsageError>([&] { open_data(part, Split::train); }, {"words"});
}

}  // namespace invar
