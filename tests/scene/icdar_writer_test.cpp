#include "invar/scene/icdar_writer.h"

#include <cstdlib>

#include "invar/core/error.h"
#include "invar/image/decode.h"
#include "rendered.h"

namespace invar::scene {

namespace {

namespace fs = std::filesystem;

class WriteIcdar : public ::testing::Test {
  protected:
    WriteIcdar() {
        std::string name = (fs::temp_directory_path() / "invar-icdar-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
        folder_ = fs::path(name) / "train";
        options_.height = 256, options_.width = 320;
        options_.max_font_size = 40;
        options_.curved = 0.5;
        renderer_ = make_freetype_renderer(options_, FontSet::all());
    }
    ~WriteIcdar() override { fs::remove_all(folder_.parent_path()); }

    fs::path folder_;
    SceneOptions options_;
    std::unique_ptr<SceneRenderer> renderer_;
};

}  // namespace

TEST_F(WriteIcdar, IsReadBackAsItWasRendered) {
    write_icdar(folder_, *renderer_, 4, 11, {detect::TruthFormat::polygons});
    std::size_t curved = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
        const Scene scene = renderer_->render(11, i);
        EXPECT_EQ(read_image(folder_ / fmt::format("img_{}.png", i + 1)), scene.image);
        const auto texts =
            detect::read_ground_truth(folder_ / fmt::format("gt_img_{}.txt", i + 1), detect::TruthFormat::polygons);
        ASSERT_EQ(texts.size(), scene.texts.size());
        for (std::size_t k = 0; k < texts.size(); ++k) {
            EXPECT_EQ(texts[k].transcription, scene.texts[k].transcription);
            EXPECT_EQ(texts[k].dont_care, scene.texts[k].dont_care);
            ASSERT_EQ(texts[k].polygon.size(), scene.texts[k].polygon.size());
            curved += texts[k].polygon.size() > 4;
            for (std::size_t p = 0; p < texts[k].polygon.size(); ++p) {
                EXPECT_NEAR(texts[k].polygon[p].x, scene.texts[k].polygon[p].x, 0.5);
                EXPECT_NEAR(texts[k].polygon[p].y, scene.texts[k].polygon[p].y, 0.5);
            }
        }
    }
    EXPECT_GT(curved, 0u);
}

TEST_F(WriteIcdar, WritesFourCornersAsPublished) {
    write_icdar(folder_, *renderer_, 3, 11, {.jpeg = true});
    for (std::int64_t i = 0; i < 3; ++i) {
        const Scene scene = renderer_->render(11, i);
        const auto texts = detect::read_ground_truth(folder_ / fmt::format("gt_img_{}.txt", i + 1));
        EXPECT_EQ(read_image(folder_ / fmt::format("img_{}.jpg", i + 1)).size(), scene.image.size());
        ASSERT_EQ(texts.size(), scene.texts.size());
        for (std::size_t k = 0; k < texts.size(); ++k) {
            EXPECT_EQ(texts[k].polygon.size(), 4u);
            EXPECT_EQ(texts[k].transcription, scene.texts[k].transcription);
            if (texts[k].dont_care) continue;
            EXPECT_GT(detect::iou(texts[k].polygon, scene.texts[k].polygon), 0.45);
        }
    }
}

TEST_F(WriteIcdar, RefusesANegativeCount) {
    EXPECT_THROW(write_icdar(folder_, *renderer_, -1, 0), UsageError);
    write_icdar(folder_, *renderer_, 0, 0);
    EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace invar::scene
