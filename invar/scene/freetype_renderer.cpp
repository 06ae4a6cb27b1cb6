// The renderer to train with: blocks of text find a place where none is yet, and are painted onto a background.
#include <algorithm>
#include <cmath>
#include <optional>

#include "invar/scene/background.h"
#include "invar/scene/grain.h"
#include "invar/scene/mask.h"
#include "invar/scene/scene.h"
#include "invar/scene/text_block.h"
#include "invar/scene/words.h"

namespace invar::scene {

namespace {

using detect::Bounds;
using detect::Point;
using detect::Polygon;

Bounds grown(const Bounds& box, double by) {
    return {box.left - by, box.top - by, box.right + by, box.bottom + by};
}

// What is decided of a block before it has a place.
struct BlockPlan {
    std::vector<std::vector<std::string>> lines;
    BlockStyle style;
    BlockView view;
    double padding = 0;  // around the text, in ems: nothing else comes closer
    double outline = 0;  // around letters, in ems
    double blur = 0;     // of its letters alone, in ems
    bool sign = false, shadow = false, readable = true;
};

struct PlacedBlock {
    TextBlock text;
    BlockMap map;
    Polygon area;
};

// Sampled along its sides, so that it can be bent.
Polygon rounded_box(const Bounds& box, double radius) {
    constexpr double kStep = 8, kQuarter = 1.5707963267948966;
    Polygon polygon;
    const Point centres[4] = {{box.right - radius, box.top + radius},
                              {box.right - radius, box.bottom - radius},
                              {box.left + radius, box.bottom - radius},
                              {box.left + radius, box.top + radius}};
    for (int corner = 0; corner < 4; ++corner) {
        for (int i = 0; i <= 4; ++i) {
            const double angle = kQuarter * (corner - 1 + i / 4.0);
            polygon.push_back(
                {centres[corner].x + radius * std::cos(angle), centres[corner].y + radius * std::sin(angle)});
        }
        const Point from = polygon.back(), next = centres[(corner + 1) % 4];
        const double end = kQuarter * corner;
        const Point to{next.x + radius * std::cos(end), next.y + radius * std::sin(end)};
        const int steps = int(std::hypot(to.x - from.x, to.y - from.y) / kStep);
        for (int i = 1; i < steps; ++i)
            polygon.push_back({from.x + (to.x - from.x) * i / steps, from.y + (to.y - from.y) * i / steps});
    }
    return polygon;
}

std::vector<Polygon> mapped(const std::vector<Polygon>& contours, const BlockMap& map) {
    std::vector<Polygon> out(contours);
    for (Polygon& contour : out)
        for (Point& p : contour) p = map(p);
    return out;
}

// One scene in the making.
class SceneInWork {
  public:
    SceneInWork(const SceneOptions& options, const FontSet& fonts, RandomDraws draws)
        : options_(options), fonts_(fonts), draws_(draws) {
        scene_.image = draw_background(options.height, options.width, draws_);
        if (options.keep_ink) scene_.ink = Image(options.height, options.width, 1);
    }

    Scene finish() && {
        add_blocks();
        const Camera camera = draw_camera(draws_, options_.blur, options_.noise);
        take_picture(scene_.image, camera, draw_key(draws_));
        return std::move(scene_);
    }

  private:
    void add_blocks() {
        const std::int64_t wanted = options_.min_words + draws_.below(options_.max_words - options_.min_words + 1);
        std::int64_t words = 0;
        for (int failures = 0; words < wanted && failures < 6;) {
            const std::int64_t added = add(plan_text(wanted - words));
            words += added;
            failures = added > 0 ? 0 : failures + 1;
            if (draws_.chance(options_.dont_care)) add(plan_smudge());
        }
    }

    BlockPlan plan_text(std::int64_t most_words) {
        BlockPlan plan;
        plan.view.curved = draws_.chance(options_.curved);
        plan.view.tilted = draws_.chance(options_.perspective);
        plan.view.degrees = options_.rotation * (draws_.uniform() + draws_.uniform() - 1);
        plan.lines = draw_lines(draws_, plan.view.curved ? 1 : 3, most_words);
        const double least = std::log(options_.min_font_size), most = std::log(options_.max_font_size);
        plan.style.size = std::exp(draws_.uniform({least, most}));
        plan.style.tracking = draws_.chance(0.3) ? draws_.uniform({0, 0.12}) : draws_.uniform({-0.01, 0.02});
        plan.style.leading = draws_.uniform({1.25, 1.6});
        plan.style.word_gap = draws_.uniform({0.32, 0.55});
        plan.style.stretch = draws_.chance(0.3) ? draws_.uniform({0.75, 1.3}) : 1;
        plan.style.align = BlockStyle::Align(draws_.below(3));
        plan.padding = draws_.uniform({0.2, 0.7});
        plan.sign = draws_.chance(options_.sign);
        plan.shadow = draws_.chance(options_.shadow);
        if (draws_.chance(options_.outline)) plan.outline = draws_.uniform({0.03, 0.07});
        return plan;
    }

    // Too small, or too blurred, to be read.
    BlockPlan plan_smudge() {
        BlockPlan plan;
        plan.view.tilted = draws_.chance(options_.perspective);
        plan.view.degrees = options_.rotation * (draws_.uniform() + draws_.uniform() - 1);
        plan.lines = draw_lines(draws_, 4, 8);
        const bool tiny = draws_.chance(0.6);
        plan.style.size = tiny ? draws_.uniform({5, 9}) : draws_.uniform({10, 22});
        plan.blur = tiny ? 0.1 : draws_.uniform({0.16, 0.24});
        plan.style.leading = 1.4;
        plan.style.align = BlockStyle::Align::left;
        plan.padding = draws_.uniform({0.3, 1});
        plan.sign = draws_.chance(0.3);
        plan.readable = false;
        return plan;
    }

    // How many words were added; 0 where there is no room for any.
    std::int64_t add(BlockPlan plan) {
        const Font& font = fonts_[std::size_t(draws_.below(std::int64_t(fonts_.size())))];
        const double least = plan.readable ? options_.min_font_size : plan.style.size;
        for (;;) {
            if (const auto block = place(plan, font)) {
                paint_block(plan, *block);
                return std::int64_t(block->text.words.size());
            }
            // A word less, or else smaller letters.
            if (plan.lines.size() > 1)
                plan.lines.pop_back();
            else if (!plan.lines.empty() && plan.lines[0].size() > 1)
                plan.lines[0].pop_back();
            else if (plan.style.size > least)
                plan.style.size = std::max(plan.style.size * 0.6, least);
            else
                return 0;
        }
    }

    std::optional<PlacedBlock> place(const BlockPlan& plan, const Font& font) {
        constexpr double kBorder = 2;
        TextBlock text = lay_out(plan.lines, font, plan.style);
        if (text.words.empty()) return {};
        const BlockMap map = draw_map(draws_, text, plan.view);
        const Polygon area = map.outline(grown(text.extent, plan.padding * text.size + 2));
        const Bounds bounds = detect::bounds_of(area);
        const double spare_x = double(options_.width) - 2 * kBorder - bounds.width();
        const double spare_y = double(options_.height) - 2 * kBorder - bounds.height();
        if (spare_x < 0 || spare_y < 0) return {};
        for (int attempt = 0; attempt < 10; ++attempt) {
            const double x = kBorder + spare_x * draws_.uniform() - bounds.left;
            const double y = kBorder + spare_y * draws_.uniform() - bounds.top;
            Polygon moved = area;
            for (Point& p : moved) p = {p.x + x, p.y + y};
            if (!is_free(moved)) continue;
            taken_.push_back(moved);
            return PlacedBlock{std::move(text), map.moved(x, y), std::move(moved)};
        }
        return {};
    }

    bool is_free(const Polygon& area) const {
        const Bounds bounds = detect::bounds_of(area);
        return std::ranges::none_of(taken_, [&](const Polygon& other) {
            return bounds.overlaps(detect::bounds_of(other)) && detect::intersection_area(area, other) > 0;
        });
    }

    void paint_block(const BlockPlan& plan, const PlacedBlock& block) {
        const Bounds bounds = detect::bounds_of(block.area);
        const Brightness behind =
            brightness_of(scene_.image, {std::int64_t(bounds.top), std::int64_t(bounds.left),
                                         std::int64_t(bounds.height()) + 1, std::int64_t(bounds.width()) + 1});
        constexpr double kRestless = 26;  // letters on a ground that varies more need one of their own
        double ground = behind.mean;
        bool outlined = plan.outline > 0;
        if (plan.sign) {
            ground = paint_panel(block, plan.padding * plan.style.size);
        } else if (behind.deviation > kRestless) {
            outlined = plan.readable;
        }
        const double contrast = plan.readable ? options_.min_contrast : options_.min_contrast / 3;
        const Rgb colour = draw_contrasting_colour(draws_, ground, contrast);
        const Rgb edge = draw_contrasting_colour(draws_, luma(colour), options_.min_contrast);
        const double size = plan.style.size;
        const double width = outlined ? std::max(1.0, size * (plan.outline > 0 ? plan.outline : 0.04)) : 0;
        const double drop = size * draws_.uniform({0.03, 0.09}), opacity = draws_.uniform({0.85, 1});
        for (const BlockWord& word : block.text.words) {
            const double sigma = plan.blur * size;
            Mask letters = fill_contours(mapped(word.contours, block.map), 2 + std::int64_t(width + drop + 3 * sigma));
            Mask outline = letters;
            if (outlined) spread(outline, width);
            if (options_.keep_ink) merge_ink(scene_.ink, outline);
            if (plan.shadow) {
                Mask shadow = outline;
                shadow.left += std::llround(drop), shadow.top += std::llround(drop);
                blur(shadow, drop / 2);
                paint(scene_.image, shadow, {0, 0, 0}, 0.6);
            }
            if (outlined) paint(scene_.image, outline, edge, opacity);
            if (sigma > 0) blur(letters, sigma);
            paint(scene_.image, letters, colour, opacity);
            const double margin = (plan.readable ? 1 : 0.3) + 0.03 * size + width;
            scene_.texts.push_back(
                {block.map.outline(grown(word.ink, margin)), plan.readable ? word.text : "###", !plan.readable});
        }
    }

    // Returns how bright it is.
    double paint_panel(const PlacedBlock& block, double padding) {
        const Bounds box = grown(block.text.extent, padding);
        const double radius = draws_.chance(0.4) ? padding * draws_.uniform({0.2, 1}) : 0;
        const auto panel = [&](double by, Rgb colour, double opacity) {
            const std::vector<Polygon> shape =
                mapped({rounded_box(grown(box, -by), std::max(radius - by, 0.0))}, block.map);
            paint(scene_.image, fill_contours(shape), colour, opacity);
        };
        const Rgb colour = draws_.chance(0.55) ? draw_muted_colour(draws_) : draw_colour(draws_, {0.4, 1}, {0.25, 1});
        const double opacity = draws_.uniform({0.88, 1});
        if (draws_.chance(0.35)) {
            panel(0, draw_muted_colour(draws_), 1);
            panel(padding * draws_.uniform({0.1, 0.35}), colour, 1);
        } else {
            panel(0, colour, opacity);
        }
        return luma(colour);
    }

    const SceneOptions& options_;
    const FontSet& fonts_;
    RandomDraws draws_;
    Scene scene_;
    std::vector<Polygon> taken_;
};

class FreetypeRenderer : public SceneRenderer {
  public:
    FreetypeRenderer(const SceneOptions& options, FontSet fonts) : SceneRenderer(options), fonts_(std::move(fonts)) {}
    Scene render(std::uint64_t seed, std::int64_t index) const override {
        constexpr std::uint64_t kStream = 0x7363'656e'6500'0000;
        return SceneInWork(options(), fonts_, scene_draws(seed, index, kStream)).finish();
    }

  private:
    FontSet fonts_;
};

}  // namespace

std::unique_ptr<SceneRenderer> make_freetype_renderer(const SceneOptions& options, FontSet fonts) {
    return std::make_unique<FreetypeRenderer>(options, std::move(fonts));
}

}  // namespace invar::scene
