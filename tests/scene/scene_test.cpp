#include "invar/scene/scene.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "invar/core/error.h"
#include "invar/detect/ceiling.h"
#include "rendered.h"

// What fontconfig remembers of its own configuration, once, it never gives back; a leak sanitizer asks here.
extern "C" const char* __lsan_default_suppressions() {
    return "leak:libfontconfig.so";
}

namespace invar::scene {

using namespace testing;

namespace {

bool same_texts(const Scene& a, const Scene& b) {
    return std::ranges::equal(a.texts, b.texts, [](const detect::TextRegion& x, const detect::TextRegion& y) {
        return x.polygon == y.polygon && x.transcription == y.transcription && x.dont_care == y.dont_care;
    });
}

class EachRenderer : public ::testing::TestWithParam<NamedMaker> {
  protected:
    std::unique_ptr<SceneRenderer> make(const SceneOptions& options = {}) const { return GetParam().make(options); }
};

SceneOptions small() {
    SceneOptions options;
    options.height = 224, options.width = 288;
    options.max_words = 6;
    options.max_font_size = 40;
    return options;
}

}  // namespace

TEST_P(EachRenderer, MakesTheSamePixelsForTheSameSeedAndIndex) {
    const auto renderer = make(small()), again = make(small());
    for (const std::int64_t index : {0, 1, 41}) {
        const Scene first = renderer->render(3, index), second = again->render(3, index);
        EXPECT_EQ(first.image, second.image);
        EXPECT_TRUE(same_texts(first, second));
    }
    EXPECT_NE(renderer->render(3, 0).image, renderer->render(3, 1).image);
    EXPECT_NE(renderer->render(3, 0).image, renderer->render(4, 0).image);
    EXPECT_EQ(renderer->render(3, 0).image.size(), (ImageSize{224, 288}));
}

TEST_P(EachRenderer, MakesTheSamePixelsOnManyThreadsAtOnce) {
    constexpr std::int64_t kScenes = 6;
    const auto renderer = make(small());
    std::vector<Scene> alone;
    for (std::int64_t i = 0; i < kScenes; ++i) alone.push_back(renderer->render(9, i));
    std::vector<int> equal(4, 0);
    {
        std::vector<std::jthread> threads;
        for (std::size_t t = 0; t < equal.size(); ++t)
            threads.emplace_back([&, t] {
                for (std::int64_t i = 0; i < kScenes; ++i) {  // each in an order of its own
                    const std::int64_t index = (i + std::int64_t(t) * 2) % kScenes;
                    const Scene scene = renderer->render(9, index);
                    equal[t] +=
                        scene.image == alone[std::size_t(index)].image && same_texts(scene, alone[std::size_t(index)]);
                }
            });
    }
    EXPECT_EQ(equal, std::vector<int>(equal.size(), int(kScenes)));
}

TEST_P(EachRenderer, DrawsSimplePolygonsInsideTheImageThatDoNotOverlap) {
    constexpr double kTolerance = 1;
    const auto renderer = make();
    std::int64_t count = 0, curved = 0, dont_care = 0;
    for (std::int64_t index = 0; index < 25; ++index) {
        const Scene scene = renderer->render(1, index);
        std::vector<detect::Polygon> texts;
        for (const detect::TextRegion& text : scene.texts) {
            SCOPED_TRACE(fmt::format("scene {}, \"{}\"", index, text.transcription));
            EXPECT_TRUE(detect::is_simple(text.polygon));
            EXPECT_TRUE(detect::is_clockwise(text.polygon));
            EXPECT_GT(detect::covered_area(text.polygon), 4);
            EXPECT_EQ(text.polygon.size() % 2, 0u);
            const detect::Bounds bounds = detect::bounds_of(text.polygon);
            EXPECT_GE(std::min(bounds.left, bounds.top), -kTolerance);
            EXPECT_LE(std::max(bounds.right, bounds.bottom), 640 + kTolerance);
            EXPECT_FALSE(text.transcription.empty());
            EXPECT_EQ(text.dont_care, text.transcription == "###");
            curved += text.polygon.size() > 4, dont_care += text.dont_care;
            for (const detect::Polygon& other : texts)
                EXPECT_LT(detect::intersection_area(other, text.polygon), 0.02 * detect::covered_area(text.polygon));
            texts.push_back(text.polygon);
        }
        count += std::int64_t(scene.texts.size());
    }
    EXPECT_GT(count - dont_care, 100);
    EXPECT_GT(curved, 5);
    EXPECT_GT(dont_care, 10);
}

TEST_P(EachRenderer, PutsItsInkIntoItsPolygons) {
    SceneOptions options;
    options.keep_ink = true;
    const auto renderer = make(options);
    for (std::int64_t index = 0; index < 12; ++index) {
        SCOPED_TRACE(index);
        const Scene scene = renderer->render(2, index);
        ASSERT_EQ(scene.ink.size(), scene.image.size());
        const std::vector<bool> covered = covered_by(scene.texts, scene.ink);
        double ink = 0, inside = 0;
        for (std::size_t i = 0; i < covered.size(); ++i)
            ink += scene.ink.pixels[i], inside += covered[i] ? scene.ink.pixels[i] : 0;
        EXPECT_GE(inside, 0.98 * ink);
        for (const detect::TextRegion& text : scene.texts) {
            if (text.dont_care) continue;
            // Around each word, as tight as its letters allow.
            double own = 0, area = 0;
            for (const detect::Span& span : detect::spans_of(text.polygon, scene.ink.height, scene.ink.width))
                for (std::int64_t x = span.first; x < span.last; ++x) own += *scene.ink.at(span.row, x) / 255.0, ++area;
            EXPECT_GT(own, 0.06 * area) << text.transcription;
            EXPECT_LT(own, 0.98 * area) << text.transcription;
        }
    }
    EXPECT_TRUE(make()->render(2, 0).ink.pixels.empty()) << "nobody asked for it";
}

TEST_P(EachRenderer, ShowsItsInk) {
    SceneOptions options;
    options.keep_ink = true;
    options.blur = options.noise = 0;
    options.dont_care = options.outline = 0;
    const auto renderer = make(options);
    for (std::int64_t index = 0; index < 6; ++index) {
        const Scene scene = renderer->render(5, index);
        for (const detect::TextRegion& text : scene.texts) {
            // Letters and what is between them differ, by about the contrast that was asked for.
            double sum[2] = {}, count[2] = {};
            for (const detect::Span& span : detect::spans_of(text.polygon, 640, 640))
                for (std::int64_t x = span.first; x < span.last; ++x) {
                    const std::uint8_t ink = *scene.ink.at(span.row, x), *rgb = scene.image.at(span.row, x);
                    if (ink > 10 && ink < 245) continue;
                    sum[ink > 128] += 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], ++count[ink > 128];
                }
            if (count[0] < 20 || count[1] < 20) continue;
            EXPECT_GT(std::abs(sum[0] / count[0] - sum[1] / count[1]), 20)
                << text.transcription << " in scene " << index;
        }
    }
}

TEST_P(EachRenderer, HasLabelsThatADetectorCanReach) {
    detect::Ceiling ceiling;
    const auto renderer = make();
    for (std::int64_t index = 0; index < 20; ++index)
        ceiling += detect::image_ceiling(renderer->render(7, index).texts, 640, 640).ceiling;
    EXPECT_GT(ceiling.counts.truths, 100);
    EXPECT_GT(ceiling.counts.hmean(), 0.9);
}

TEST_P(EachRenderer, MayDrawNoTextAtAll) {
    SceneOptions options = small();
    options.min_words = options.max_words = 0;
    options.dont_care = 0;
    EXPECT_TRUE(make(options)->render(1, 1).texts.empty());
}

TEST_P(EachRenderer, FindsRoomInSmallAndNarrowImages) {
    for (const ImageSize size : {ImageSize{64, 64}, ImageSize{64, 700}, ImageSize{500, 64}}) {
        SceneOptions options;
        options.height = size.height, options.width = size.width;
        options.min_words = 5;
        const auto renderer = make(options);
        for (std::int64_t index = 0; index < 5; ++index) EXPECT_EQ(renderer->render(1, index).image.size(), size);
    }
}

INSTANTIATE_TEST_SUITE_P(Scene, EachRenderer, ::testing::ValuesIn(makers()), testing::name_of);

TEST(SceneOptions, OutOfRangeAreRefusedByName) {
    const auto refusal = [](const auto& change) {
        SceneOptions options;
        change(options);
        try {
            check_options(options);
        } catch (const UsageError& error) {
            EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
            return std::string(error.what());
        }
        return std::string("nothing");
    };
    EXPECT_EQ(refusal([](SceneOptions&) {}), "nothing");
    EXPECT_EQ(refusal([](SceneOptions& o) { o.height = 63; }),
              "scenes of 63 x 640 pixels, expected 64 to 8192 for either side");
    EXPECT_EQ(refusal([](SceneOptions& o) { o.min_words = 17; }),
              "17 to 16 words in a scene, expected 0 to 1000 with the smaller number first");
    EXPECT_EQ(refusal([](SceneOptions& o) { o.min_font_size = 4; }),
              "fonts of 4 to 80 pixels, expected 8 to 1000 with the smaller number first");
    EXPECT_EQ(refusal([](SceneOptions& o) { o.curved = 1.5; }), "curved of scenes is 1.5, expected 0 to 1");
    EXPECT_EQ(refusal([](SceneOptions& o) { o.noise = NAN; }), "noise of scenes is nan, expected 0 to 100");
    EXPECT_THROW(make_freetype_renderer(
                     [] {
                         SceneOptions o;
                         o.blur = -1;
                         return o;
                     }(),
                     FontSet::all()),
                 UsageError);
}

TEST(FreetypeRenderer, IsFastEnoughToTrainFrom) {
    // 30 a second is what is asked for on a core of its own; a core that is shared, or watched by a sanitizer, has
    // less.
    const auto renderer = make_freetype_renderer({}, FontSet::train(package_folders()));
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t index = 0; index < 10; ++index) renderer->render(1, index);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    RecordProperty("scenes_per_second", std::to_string(10 / seconds));
    EXPECT_LT(seconds, 10);
}

}  // namespace invar::scene
