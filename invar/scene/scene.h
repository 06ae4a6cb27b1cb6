// Scenes with text, rendered: images of signs and walls whose words are known to the pixel, so that a text detector can
// be trained and judged without a download. An image is a function of (options, fonts, seed, index) alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "invar/detect/text_region.h"
#include "invar/image/augment.h"
#include "invar/image/image.h"
#include "invar/scene/fonts.h"

namespace invar::scene {

struct Scene {
    Image image;
    // A polygon for each word. It has four corners, clockwise from where reading starts; on an arc it has a row of
    // points above the word and one below. Words that nobody could read are "###", and do not count.
    std::vector<detect::TextRegion> texts;
    Image ink;  // one channel, 255 where glyphs are; empty unless options.keep_ink
};

// Shares are probabilities, 0 to 1.
struct SceneOptions {
    std::int64_t height = 640, width = 640;
    std::int64_t min_words = 3, max_words = 16;     // that count; fewer where they find no room
    double min_font_size = 24, max_font_size = 80;  // of the em, in pixels
    double curved = 0.12;                           // share of blocks on an arc
    double perspective = 0.5;                       // share of blocks seen from the side
    double rotation = 20;                           // degrees at most, to either side
    double dont_care = 0.25;   // share of blocks that have a smudge for company which nobody could read
    double sign = 0.55;        // share of blocks on a panel of their own
    double outline = 0.12;     // share of blocks whose letters are outlined
    double shadow = 0.2;       // share of blocks whose letters throw a shadow
    double min_contrast = 70;  // between letters and what is behind them, in units of 0 to 255
    double blur = 1.1;         // sigma in pixels, at most
    double noise = 9;          // deviation at most, in units of 0 to 255
    bool keep_ink = false;
};
// A UsageError that names the option and what it may be.
void check_options(const SceneOptions& options);

class SceneRenderer {
  public:
    virtual ~SceneRenderer() = default;
    // From any number of threads at once. The same pixels wherever fonts, C library and kind of CPU are the same.
    virtual Scene render(std::uint64_t seed, std::int64_t index) const = 0;
    const SceneOptions& options() const { return options_; }

  protected:
    explicit SceneRenderer(const SceneOptions& options) : options_(options) { check_options(options); }

  private:
    SceneOptions options_;
};

// Outlines of FreeType, everything else our own.
std::unique_ptr<SceneRenderer> make_freetype_renderer(const SceneOptions& options, FontSet fonts);

// Pango and Cairo: another renderer with backgrounds, layout and rasteriser of its own, to test on what was not trained
// on. An Error in a build without them.
bool has_pango();
std::unique_ptr<SceneRenderer> make_pango_renderer(const SceneOptions& options, FontSet fonts);
std::unique_ptr<SceneRenderer> make_pango_renderer(const SceneOptions& options);  // with FontSet::test()

// The numbers behind one scene; `stream` tells renderers apart.
RandomDraws scene_draws(std::uint64_t seed, std::int64_t index, std::uint64_t stream);

}  // namespace invar::scene
