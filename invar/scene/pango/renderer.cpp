// The renderer to test with: the image is cut into cells, and what is written into a cell is made to fit it. Shares no
// layout, background or rasteriser with the one of FreeType.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>

#include "invar/scene/grain.h"
#include "invar/scene/pango/backdrop.h"
#include "invar/scene/pango/start.h"
#include "invar/scene/pango/writer.h"
#include "invar/scene/words.h"

namespace invar::scene {

namespace {

using detect::Bounds;

struct Cell {
    double left, top, width, height;
};

// Cut across the longer side until cells are small, or happen to stay large.
void cut(const Cell& cell, RandomDraws& draws, std::vector<Cell>& cells) {
    const double longer = std::max(cell.width, cell.height);
    if (longer < 150 || (longer < 420 && draws.chance(0.25))) {
        cells.push_back(cell);
        return;
    }
    // Texts are wide: rather lie below one another.
    const bool below = cell.height * 1.8 > cell.width && cell.height > 70;
    const double at = draws.uniform({0.35, 0.65});
    if (below) {
        cut({cell.left, cell.top, cell.width, cell.height * at}, draws, cells);
        cut({cell.left, cell.top + cell.height * at, cell.width, cell.height * (1 - at)}, draws, cells);
    } else {
        cut({cell.left, cell.top, cell.width * at, cell.height}, draws, cells);
        cut({cell.left + cell.width * at, cell.top, cell.width * (1 - at), cell.height}, draws, cells);
    }
}

struct Inscription {
    SetText text;
    Bend bend;
    cairo_matrix_t matrix;
    double size = 0, padding = 0;
};

class CellScene {
  public:
    CellScene(const SceneOptions& options, const FontSet& fonts, const PangoWriter& writer, RandomDraws draws)
        : options_(options),
          fonts_(fonts),
          writer_(writer),
          draws_(draws),
          canvas_(CAIRO_FORMAT_RGB24, options.height, options.width),
          ink_(CAIRO_FORMAT_A8, options.keep_ink ? options.height : 1, options.keep_ink ? options.width : 1) {}

    Scene finish() && {
        const double height = double(options_.height), width = double(options_.width);
        draw_backdrop(canvas_, height, width, draws_);
        std::vector<Cell> cells;
        cut({0, 0, width, height}, draws_, cells);
        for (std::size_t i = cells.size(); i > 1; --i)
            std::swap(cells[i - 1], cells[std::size_t(draws_.below(std::int64_t(i)))]);
        const std::int64_t wanted = options_.min_words + draws_.below(options_.max_words - options_.min_words + 1);
        std::int64_t words = 0;
        for (const Cell& cell : cells) {
            if (words < wanted)
                words += write(cell, wanted - words);
            else if (draws_.chance(options_.dont_care / 2))
                write_small(cell);
        }
        scene_.image = canvas_.rgb();
        if (options_.keep_ink) scene_.ink = ink_.alpha();
        photograph();
        return std::move(scene_);
    }

  private:
    const Font& draw_font() { return fonts_[std::size_t(draws_.below(std::int64_t(fonts_.size())))]; }

    std::int64_t write(const Cell& cell, std::int64_t most_words) {
        const bool curved = draws_.chance(options_.curved), tilted = !curved && draws_.chance(options_.perspective);
        auto lines = draw_lines(draws_, curved ? 1 : 2, most_words);
        const double size =
            std::exp(draws_.uniform({std::log(options_.min_font_size), std::log(options_.max_font_size)}));
        const Font& font = draw_font();
        const double turn = draws_.uniform({-1, 1}), degrees = options_.rotation * turn * std::abs(turn);
        const double tilt = draws_.uniform({-0.2, 0.2}), sweep = draws_.uniform({0.5, 2}), side = draws_.uniform();
        const double padding = draws_.uniform({0.15, 0.5});
        double fitting = size;
        for (int attempt = 0; attempt < 8; ++attempt) {
            Inscription inscription{writer_.set(lines, font, fitting), {}, {}, fitting, padding * fitting};
            const Bounds& ink = inscription.text.ink;
            if (inscription.text.words.empty()) return 0;
            const double across = ink.width() + 2 * inscription.padding;
            if (curved) inscription.bend.radius = std::max(across / sweep, ink.height() * 2) * (side < 0.6 ? 1 : -1);
            if (tilted) inscription.bend.depth_x = 2 * tilt / std::max(across, 4 * ink.height());
            const double fit = centre(inscription, cell, degrees);
            if (fit >= 1) {
                inscribe(inscription);
                return std::int64_t(inscription.text.words.size());
            }
            if (fitting * fit >= options_.min_font_size)
                fitting *= fit * 0.97;
            else if (lines.size() > 1)
                lines.pop_back(), fitting = size;
            else if (lines[0].size() > 1)
                lines[0].pop_back(), fitting = size;
            else
                return 0;
        }
        return 0;
    }

    // Small print, in the thickness of a hair: texts that do not count.
    void write_small(const Cell& cell) {
        const double size = draws_.uniform({4.5, 7.5});
        const auto lines = draw_lines(draws_, 4, 10);
        Inscription inscription{writer_.set(lines, draw_font(), size), {}, {}, size, size};
        if (inscription.text.words.empty() || centre(inscription, cell, 0) < 1) return;
        cairo_t* const cr = canvas_.cairo();
        const double shade = canvas_.brightness(box_of(cell)) < 128 ? 1 : 0, alpha = draws_.uniform({0.25, 0.6});
        for (const SetWord& word : inscription.text.words) {
            draw(cr, inscription, word, {shade, shade, shade}, alpha);
            add_text(inscription, word, "###", 0.5);
        }
    }

    // Moves the inscription to the middle of the cell; how much of its size would fit there, 1 or more where all does.
    double centre(Inscription& inscription, const Cell& cell, double degrees) {
        constexpr double kMargin = 3;
        cairo_t* const cr = canvas_.cairo();
        const Bounds& ink = inscription.text.ink;
        const double by = inscription.padding;
        const auto at = [&](double x, double y) {
            cairo_matrix_init_translate(&inscription.matrix, x, y);
            cairo_matrix_rotate(&inscription.matrix, degrees * std::numbers::pi / 180);
            cairo_set_matrix(cr, &inscription.matrix);
            const auto area =
                device_outline(cr, {ink.left - by, ink.top - by, ink.right + by, ink.bottom + by}, inscription.bend);
            cairo_identity_matrix(cr);
            return detect::bounds_of(area);
        };
        const Bounds here = at(0, 0);
        const double x = cell.left + cell.width / 2 - (here.left + here.right) / 2;
        const double y = cell.top + cell.height / 2 - (here.top + here.bottom) / 2;
        at(x, y);
        return std::min((cell.width - 2 * kMargin) / here.width(), (cell.height - 2 * kMargin) / here.height());
    }

    struct Tint {
        double r, g, b;
        double brightness() const { return 255 * (0.299 * r + 0.587 * g + 0.114 * b); }
    };
    Tint draw_tint() { return {draws_.uniform(), draws_.uniform(), draws_.uniform()}; }
    Tint draw_tint_on(double ground) {
        for (int attempt = 0; attempt < 15; ++attempt)
            if (const Tint tint = draw_tint(); std::abs(tint.brightness() - ground) >= options_.min_contrast)
                return tint;
        return ground < 128 ? Tint{1, 1, 1} : Tint{0, 0, 0};
    }

    static PixelBox box_of(const Cell& cell) {
        return {std::int64_t(cell.top), std::int64_t(cell.left), std::int64_t(cell.height), std::int64_t(cell.width)};
    }

    void inscribe(const Inscription& inscription) {
        cairo_t* const cr = canvas_.cairo();
        const Bounds& ink = inscription.text.ink;
        const double by = inscription.padding;
        cairo_set_matrix(cr, &inscription.matrix);
        const detect::Polygon area =
            device_outline(cr, {ink.left - by, ink.top - by, ink.right + by, ink.bottom + by}, inscription.bend);
        cairo_identity_matrix(cr);
        const Bounds bounds = detect::bounds_of(area);
        if (draws_.chance(options_.sign)) paint_board(area, bounds);
        const double ground = canvas_.brightness({std::int64_t(bounds.top), std::int64_t(bounds.left),
                                                  std::int64_t(bounds.height()), std::int64_t(bounds.width())});
        const Tint colour = draw_tint_on(ground);
        const bool shadow = draws_.chance(options_.shadow);
        const double edge = draws_.chance(options_.outline) ? inscription.size * 0.08 : 0;  // half of it is outside
        const Tint edge_colour = draw_tint_on(colour.brightness());
        for (const SetWord& word : inscription.text.words) {
            if (shadow) {
                cairo_save(cr);
                cairo_translate(cr, inscription.size * 0.05, inscription.size * 0.05);
                draw(cr, inscription, word, {0, 0, 0}, 0.45);
                cairo_restore(cr);
            }
            if (edge > 0) draw(cr, inscription, word, edge_colour, 1, edge);
            draw(cr, inscription, word, colour, 1);
            add_text(inscription, word, word.text, 1 + 0.025 * inscription.size + edge / 2);
        }
    }

    void paint_board(const detect::Polygon& area, const Bounds& bounds) {
        cairo_t* const cr = canvas_.cairo();
        const CairoPattern fill(cairo_pattern_create_linear(bounds.left, bounds.top, bounds.right, bounds.bottom));
        const Tint tint = draw_tint();
        const double fade = draws_.uniform({0.75, 1});
        cairo_pattern_add_color_stop_rgb(fill.get(), 0, tint.r, tint.g, tint.b);
        cairo_pattern_add_color_stop_rgb(fill.get(), 1, tint.r * fade, tint.g * fade, tint.b * fade);
        cairo_new_path(cr);
        for (const detect::Point& p : area) cairo_line_to(cr, p.x, p.y);
        cairo_close_path(cr);
        cairo_set_source(cr, fill.get());
        cairo_fill_preserve(cr);
        const Tint rim = draw_tint();
        cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
        cairo_set_line_width(cr, draws_.uniform({0.5, 3}));
        cairo_set_source_rgb(cr, rim.r, rim.g, rim.b);
        cairo_stroke(cr);
    }

    // Filled; with a width, drawn around.
    static void draw(cairo_t* cr, const Inscription& inscription, const SetWord& word, Tint tint, double alpha,
                     double width = 0) {
        cairo_save(cr);
        cairo_transform(cr, &inscription.matrix);
        cairo_set_source_rgba(cr, tint.r, tint.g, tint.b, alpha);
        if (width == 0 && inscription.bend.is_flat()) {
            cairo_move_to(cr, word.at.x, word.at.y);
            pango_cairo_show_layout(cr, word.layout.get());
        } else {
            trace_word(cr, word, inscription.bend);
            cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
            cairo_set_line_width(cr, width);
            width > 0 ? cairo_stroke(cr) : cairo_fill(cr);
        }
        cairo_restore(cr);
        cairo_new_path(cr);
    }

    void add_text(const Inscription& inscription, const SetWord& word, const std::string& says, double margin) {
        cairo_t* const cr = canvas_.cairo();
        cairo_set_matrix(cr, &inscription.matrix);
        const Bounds box{word.ink.left - margin, word.ink.top - margin, word.ink.right + margin,
                         word.ink.bottom + margin};
        scene_.texts.push_back({device_outline(cr, box, inscription.bend), says, says == "###"});
        cairo_identity_matrix(cr);
        if (options_.keep_ink) draw(ink_.cairo(), inscription, word, {1, 1, 1}, 1);
    }

    void photograph() {
        Camera camera;
        camera.sigma = options_.blur * draws_.uniform(), camera.noise = options_.noise * draws_.uniform();
        take_picture(scene_.image, camera, draw_key(draws_));
    }

    const SceneOptions& options_;
    const FontSet& fonts_;
    const PangoWriter& writer_;
    RandomDraws draws_;
    Canvas canvas_, ink_;
    Scene scene_;
};

class PangoRenderer : public SceneRenderer {
  public:
    PangoRenderer(const SceneOptions& options, const FontSet& fonts) : SceneRenderer(options), fonts_(fonts) {
        give_back(take());  // so that fonts that will not do are told of here
    }

    Scene render(std::uint64_t seed, std::int64_t index) const override {
        constexpr std::uint64_t kStream = 0x7061'6e67'6f00'0000;
        std::unique_ptr<PangoWriter> writer = take();
        Scene scene = CellScene(options(), fonts_, *writer, scene_draws(seed, index, kStream)).finish();
        give_back(std::move(writer));
        return scene;
    }

  private:
    // No two threads ever share a font map.
    std::unique_ptr<PangoWriter> take() const {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) return std::make_unique<PangoWriter>(fonts_);
        std::unique_ptr<PangoWriter> writer = std::move(idle_.back());
        idle_.pop_back();
        return writer;
    }
    void give_back(std::unique_ptr<PangoWriter> writer) const {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(writer));
    }

    FontSet fonts_;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<PangoWriter>> idle_;
};

}  // namespace

extern "C" void invar_pango_start(const SceneOptions& options, const FontSet& fonts,
                                  std::unique_ptr<SceneRenderer>& renderer) {
    renderer = std::make_unique<PangoRenderer>(options, fonts);
}

}  // namespace invar::scene
