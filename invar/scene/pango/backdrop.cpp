#include "invar/scene/pango/backdrop.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace invar::scene {

namespace {

struct Colour {
    double r, g, b;
};

// Braces around what is drawn by lot: only they say what is drawn first.
struct Paint {
    Colour colour;
    double alpha = 1;
};

// Around a grey; `spread` is how far channels leave it.
Colour draw_colour(RandomDraws& draws, double spread) {
    const double grey = draws.uniform({0.1, 0.95});
    const auto channel = [&] { return std::min(1.0, std::max(0.0, grey + draws.uniform({-spread, spread}))); };
    const double r = channel(), g = channel(), b = channel();
    return {r, g, b};
}

void set_paint(cairo_t* cr, const Paint& with) {
    cairo_set_source_rgba(cr, with.colour.r, with.colour.g, with.colour.b, with.alpha);
}

void add_stop(cairo_pattern_t* pattern, double at, Colour c, double alpha = 1) {
    cairo_pattern_add_color_stop_rgba(pattern, at, c.r, c.g, c.b, alpha);
}

void paint_sky_and_hills(cairo_t* cr, double height, double width, RandomDraws& draws) {
    const CairoPattern sky(cairo_pattern_create_linear(0, 0, draws.uniform({-0.3, 0.3}) * width, height));
    for (const double at : {0.0, 0.5, 1.0}) add_stop(sky.get(), at, draw_colour(draws, 0.12));
    cairo_set_source(cr, sky.get());
    cairo_paint(cr);
    for (std::int64_t ridge = draws.below(4); ridge > 0; --ridge) {
        double y = height * draws.uniform({0.2, 0.9});
        cairo_move_to(cr, 0, height);
        cairo_line_to(cr, 0, y);
        for (int i = 1; i <= 4; ++i) {
            const double next = height * draws.uniform({0.2, 0.9}), x = width * i / 4;
            cairo_curve_to(cr, x - width / 6, y, x - width / 12, next, x, next);
            y = next;
        }
        cairo_line_to(cr, width, height);
        cairo_close_path(cr);
        set_paint(cr, {draw_colour(draws, 0.15), draws.uniform({0.4, 1})});
        cairo_fill(cr);
    }
}

// Patches whose corners have colours of their own.
void paint_mesh(cairo_t* cr, double height, double width, RandomDraws& draws) {
    const CairoPattern mesh(cairo_pattern_create_mesh());
    constexpr int kCells = 3;
    const Colour base = draw_colour(draws, 0.2);
    Colour corners[kCells + 1][kCells + 1];
    for (auto& row : corners)
        for (Colour& c : row) {
            const double shade = draws.uniform({-0.28, 0.28});
            const auto mixed = [&](double value) { return std::min(1.0, std::max(0.0, value + shade)); };
            c = {mixed(base.r), mixed(base.g), mixed(base.b)};
        }
    for (int i = 0; i < kCells; ++i)
        for (int j = 0; j < kCells; ++j) {
            const double x0 = width * j / kCells, x1 = width * (j + 1) / kCells;
            const double y0 = height * i / kCells, y1 = height * (i + 1) / kCells;
            cairo_mesh_pattern_begin_patch(mesh.get());
            cairo_mesh_pattern_move_to(mesh.get(), x0, y0);
            cairo_mesh_pattern_line_to(mesh.get(), x1, y0);
            cairo_mesh_pattern_line_to(mesh.get(), x1, y1);
            cairo_mesh_pattern_line_to(mesh.get(), x0, y1);
            const Colour* around[] = {&corners[i][j], &corners[i][j + 1], &corners[i + 1][j + 1], &corners[i + 1][j]};
            for (unsigned k = 0; k < 4; ++k)
                cairo_mesh_pattern_set_corner_color_rgb(mesh.get(), k, around[k]->r, around[k]->g, around[k]->b);
            cairo_mesh_pattern_end_patch(mesh.get());
        }
    cairo_set_source(cr, mesh.get());
    cairo_paint(cr);
}

// A small motif, again and again.
void paint_paper(cairo_t* cr, RandomDraws& draws) {
    set_paint(cr, {draw_colour(draws, 0.15)});
    cairo_paint(cr);
    const double side = std::floor(draws.uniform({8, 48}));
    const CairoSurface tile(
        cairo_surface_create_similar(cairo_get_target(cr), CAIRO_CONTENT_COLOR_ALPHA, int(side), int(side)));
    {
        const CairoContext motif(cairo_create(tile.get()));
        set_paint(motif.get(), {draw_colour(draws, 0.2), draws.uniform({0.15, 0.6})});
        switch (draws.below(4)) {
            case 0:
                cairo_arc(motif.get(), side / 2, side / 2, side * draws.uniform({0.1, 0.4}), 0, 2 * std::numbers::pi);
                break;
            case 1:
                cairo_rectangle(motif.get(), 0, 0, side / 2, side / 2);
                cairo_rectangle(motif.get(), side / 2, side / 2, side / 2, side / 2);
                break;
            case 2:
                cairo_rectangle(motif.get(), 0, 0, side, side * draws.uniform({0.1, 0.5}));
                break;
            default:
                cairo_move_to(motif.get(), 0, side);
                cairo_line_to(motif.get(), side / 2, 0);
                cairo_line_to(motif.get(), side, side);
                break;
        }
        cairo_fill(motif.get());
    }
    const CairoPattern pattern(cairo_pattern_create_for_surface(tile.get()));
    cairo_pattern_set_extend(pattern.get(), CAIRO_EXTEND_REPEAT);
    cairo_matrix_t turn;
    cairo_matrix_init_rotate(&turn, draws.uniform({-0.8, 0.8}));
    cairo_pattern_set_matrix(pattern.get(), &turn);
    cairo_set_source(cr, pattern.get());
    cairo_paint(cr);
}

void stroke_curve(cairo_t* cr, double height, double width, RandomDraws& draws) {
    const auto x = [&] { return width * draws.uniform({-0.1, 1.1}); };
    const auto y = [&] { return height * draws.uniform({-0.1, 1.1}); };
    double place[8];
    for (int i = 0; i < 8; ++i) place[i] = i % 2 == 0 ? x() : y();
    cairo_move_to(cr, place[0], place[1]);
    cairo_curve_to(cr, place[2], place[3], place[4], place[5], place[6], place[7]);
    if (draws.chance(0.3)) {
        const double dash = draws.uniform({3, 25});
        cairo_set_dash(cr, &dash, 1, 0);
    }
    cairo_set_line_width(cr, std::exp(draws.uniform({0, 3.2})));
    set_paint(cr, {draw_colour(draws, 0.25), draws.uniform({0.2, 0.9})});
    cairo_stroke(cr);
    cairo_set_dash(cr, nullptr, 0, 0);
}

// A ball, a lamp, a spot of light.
void paint_glow(cairo_t* cr, double height, double width, RandomDraws& draws) {
    const double x = width * draws.uniform(), y = height * draws.uniform();
    const double radius = std::min(height, width) * draws.uniform({0.03, 0.35});
    const CairoPattern glow(cairo_pattern_create_radial(x, y, 0, x, y, radius));
    const Colour colour = draw_colour(draws, 0.3);
    const double core = draws.uniform({0.3, 1}), rim = draws.uniform({0.2, 0.8}), at = draws.uniform({0.3, 0.99});
    add_stop(glow.get(), 0, colour, core);
    add_stop(glow.get(), at, colour, rim);
    add_stop(glow.get(), 1, colour, 0);
    cairo_set_source(cr, glow.get());
    cairo_paint(cr);
}

}  // namespace

void draw_backdrop(const Canvas& canvas, double height, double width, RandomDraws& draws) {
    cairo_t* const cr = canvas.cairo();
    switch (draws.below(3)) {
        case 0:
            paint_sky_and_hills(cr, height, width, draws);
            break;
        case 1:
            paint_mesh(cr, height, width, draws);
            break;
        default:
            paint_paper(cr, draws);
            break;
    }
    for (std::int64_t i = draws.below(4); i > 0; --i) paint_glow(cr, height, width, draws);
    for (std::int64_t i = draws.below(6); i > 0; --i) stroke_curve(cr, height, width, draws);
}

}  // namespace invar::scene
