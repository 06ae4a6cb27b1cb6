// What tasks say of a single image.
#include <gtest/gtest.h>

#include "invar/data/text_images.h"
#include "invar/image/encode.h"
#include "invar/ops/ops.h"
#include "invar/tasks/classification.h"
#include "invar/tasks/prediction.h"
#include "invar/tasks/regression.h"
#include "invar/tasks/text_detection.h"

namespace invar {
namespace {

// Gives what was made beforehand, whatever it sees.
class Fixed : public Module {
  public:
    explicit Fixed(Tensors results) : results_(std::move(results)) {}
    Tensors forward(const Tensors&) override { return results_; }

  private:
    Tensors results_;
};

class NoTexts : public TextImages {
  public:
    NoTexts() : TextImages("none", {.size = 64}, Split::test, 1, {}) {}
    std::int64_t size() const override { return 1; }
    TextImage load(std::int64_t) const override { return {Image(50, 100)}; }
    std::string sample_name(std::int64_t) const override { return "the only one"; }
};

class Flowers : public Dataset {
  public:
    std::string name() const override { return "flowers"; }
    std::int64_t size() const override { return 1; }
    DataInfo info() const override { return {{2, 2, 1}, 6}; }
    Batch read(std::span<const std::int64_t>) const override { return {}; }
    std::vector<std::string> class_names() const override { return {"aster", "lily", "rose"}; }
};

TaskParts parts_of(const std::shared_ptr<const Dataset>& data) {
    return {data, data, [](const DataInfo&) { return std::unique_ptr<Module>(); }};
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(Predict, ClassificationTellsTheLikeliestClassesFirst) {
    const Classification task(parts_of(std::make_shared<Flowers>()));
    Fixed model({Tensor::from(std::vector<float>{0, 1, 4, 2, -1, NAN}, {1, 6})});
    Fixed sure({Tensor::from(std::vector<float>{0, 1, 20, 2, -1, 3}, {1, 6})});
    const std::optional<ImagePrediction> prediction = task.predict(sure, {});
    ASSERT_TRUE(prediction);
    const auto& classes = prediction->found.at("classes");
    ASSERT_EQ(classes.size(), 5u);
    EXPECT_EQ(classes[0].at("name"), "rose");
    EXPECT_EQ(classes[0].at("label"), 2);
    EXPECT_NEAR(classes[0].at("probability").get<double>(), 1, 1e-5);
    EXPECT_EQ(classes[1].at("name"), "5") << "without a name it is its number";
    EXPECT_EQ(prediction->cells.size(), 3u);
    EXPECT_EQ(prediction->cells[0], "rose 100.0%");
    EXPECT_FALSE(prediction->picture);
    EXPECT_TRUE(task.predict(model, {})) << "NaN is no reason to fail";
}

TEST(Predict, TextDetectionTellsTextsInPixelsOfTheFile) {
    const auto data = std::make_shared<NoTexts>();
    const TextDetection task(parts_of(data));
    const std::optional<SeenImage> seen = data->see(bytes_of(encode_png(Image(50, 100, 3, 90))), "a.png");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->x.shape(), (Shape{1, 64, 64, 3}));
    const Tensor map = ops::full({1, 64, 64}, -10.0);
    ops::copy_(map[{0, Slice{8, 16}, Slice{16, 48}}], Tensor::scalar(10));
    Fixed model({map, map});
    const std::optional<ImagePrediction> prediction = task.predict(model, *seen);
    ASSERT_TRUE(prediction);
    const auto& texts = prediction->found.at("texts");
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_NEAR(texts[0].at("score").get<double>(), 1, 1e-3);
    // 32 x 8 pixels grown by 256 * 1.5 / 80 = 4.8 on each side, then 100 / 64 of that.
    const double by = 100.0 / 64;
    const std::vector<std::vector<double>> corners = texts[0].at("polygon");
    ASSERT_EQ(corners.size(), 4u);
    for (const auto& [i, x, y] : {std::tuple(0, 16 - 4.8, 8 - 4.8), std::tuple(2, 48 + 4.8, 16 + 4.8)}) {
        EXPECT_NEAR(corners[std::size_t(i)][0], by * x, 1.0);
        EXPECT_NEAR(corners[std::size_t(i)][1], by * y, 1.0);
    }
    EXPECT_EQ(prediction->cells[0], "1 text");
    ASSERT_TRUE(prediction->picture);
    EXPECT_EQ(prediction->picture->size(), (ImageSize{50, 100}));
    EXPECT_NE(*prediction->picture, seen->whole);
}

TEST(Predict, OtherTasksHaveNothingToSay) {
    Fixed model({});
    EXPECT_FALSE(Regression(parts_of(std::make_shared<Flowers>())).predict(model, {}));
}

}  // namespace
}  // namespace invar
