#include "invar/scene/background.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "invar/detect/polygon.h"
#include "invar/scene/grain.h"
#include "invar/scene/mask.h"

namespace invar::scene {

namespace {

using detect::Point;
using detect::Polygon;

std::uint8_t to_byte(double value) {
    return std::uint8_t(std::clamp(value, 0.0, 255.0) + 0.5);
}

Rgb shaded(Rgb colour, double factor) {
    return {to_byte(colour.r * factor), to_byte(colour.g * factor), to_byte(colour.b * factor)};
}

// Two colours mixed by a gradient and slow noise, made rough by faster noise.
Image draw_wall(std::int64_t height, std::int64_t width, RandomDraws& draws) {
    const double side = double(std::max(height, width));
    const Rgb first = draw_muted_colour(draws);
    const Rgb second = draws.chance(0.6) ? shaded(first, draws.uniform({0.5, 1.5})) : draw_muted_colour(draws);
    Field mix(height, width), rough(height, width);
    const double slow_down = side / draws.uniform({1.5, 5}), slow_across = side / draws.uniform({1.5, 5});
    add_value_noise(mix, slow_down, slow_across, 0.5, draw_key(draws));
    const double stretch = draws.chance(0.3) ? draws.uniform({3, 12}) : 1;  // grain as of wood
    const double coarse = draws.uniform({20, 70}), fine = draws.uniform({2.5, 9});
    const double roughness = draws.uniform(), sharpness = roughness * draws.uniform();
    add_value_noise(rough, coarse, coarse * stretch, 4 + 26 * roughness * roughness, draw_key(draws));
    add_value_noise(rough, fine, fine * stretch, 2 + 22 * sharpness, draw_key(draws));
    const double angle = draws.uniform() * 2 * std::numbers::pi;
    const double steep = draws.uniform({0, 0.9});
    const float across = float(std::cos(angle) * steep / side), down = float(std::sin(angle) * steep / side);
    Image image(height, width);
    const float base[3] = {float(first.r), float(first.g), float(first.b)};
    const float change[3] = {float(second.r) - base[0], float(second.g) - base[1], float(second.b) - base[2]};
    for (std::int64_t y = 0; y < height; ++y) {
        const float *mixes = mix.row(y), *roughs = rough.row(y);
        std::uint8_t* row = image.row(y);
        for (std::int64_t x = 0; x < width; ++x) {
            const float slope = (float(x) - float(width) / 2) * across + (float(y) - float(height) / 2) * down;
            const float t = std::clamp(mixes[x] + slope + 0.5f, 0.0f, 1.0f);
            for (int c = 0; c < 3; ++c)
                row[3 * x + c] = std::uint8_t(std::clamp(base[c] + change[c] * t + roughs[x], 0.0f, 255.0f));
        }
    }
    return image;
}

// Braces around what is drawn by lot: only they say what is drawn first.
struct Paint {
    Rgb colour;
    double opacity = 1;
};

void fill(Image& image, const Polygon& polygon, const Paint& with) {
    paint(image, fill_contours(std::span(&polygon, 1)), with.colour, with.opacity);
}

Polygon upright_box(double left, double top, double width, double height) {
    return {{left, top}, {left + width, top}, {left + width, top + height}, {left, top + height}};
}

// Courses with joints: bricks where every other one is shifted, else tiles; planks where there are no upright joints.
void draw_courses(Image& image, RandomDraws& draws) {
    const double height = draws.uniform({14, 60}), width = height * draws.uniform({1, 4}),
                 joint = draws.uniform({1, 3});
    const bool bricks = draws.chance(0.5), planks = draws.chance(0.3);
    const double dark = draws.uniform({-45, 30}), strength = draws.uniform({0, 18});
    const std::uint64_t key = draw_key(draws);
    std::vector<int> change(std::size_t(image.width));
    for (std::int64_t y = 0; y < image.height; ++y) {
        const std::int64_t course = std::int64_t(double(y) / height);
        const bool in_joint = double(y) - double(course) * height < joint;
        if (y == 0 || std::int64_t(double(y - 1) / height) != course ||
            (double(y - 1) - double(course) * height < joint) != in_joint) {
            const double shift = bricks && course % 2 ? width / 2 : 0;
            for (std::int64_t x = 0; x < image.width; ++x) {
                const double at = double(x) + shift, brick = planks ? 0 : std::floor(at / width);
                const bool upright = !planks && at - brick * width < joint;
                const std::uint64_t hash = hash64(key + std::uint64_t(course) * 4096 + std::uint64_t(brick));
                change[std::size_t(x)] =
                    in_joint || upright ? int(dark) : int((double(hash >> 40) * 0x1p-23 - 1) * strength);
            }
        }
        std::uint8_t* row = image.row(y);
        for (std::int64_t x = 0; x < image.width; ++x)
            for (int c = 0; c < 3; ++c)
                row[3 * x + c] = std::uint8_t(std::clamp(row[3 * x + c] + change[std::size_t(x)], 0, 255));
    }
}

// The ground below a line: a street, a pavement, a shop's lower half.
void draw_ground(Image& image, RandomDraws& draws) {
    const double w = double(image.width), h = double(image.height);
    const double left = h * draws.uniform({0.45, 0.9}), right = left + h * draws.uniform({-0.15, 0.15});
    fill(image, {{0, left}, {w, right}, {w, h}, {0, h}}, {draw_muted_colour(draws), draws.uniform({0.6, 0.95})});
}

void draw_window(Image& image, RandomDraws& draws) {
    const double w = double(image.width), h = double(image.height);
    const double width = w * draws.uniform({0.06, 0.4}), height = h * draws.uniform({0.06, 0.4});
    const double left = draws.uniform({-0.1, 0.95}) * w, top = draws.uniform({-0.1, 0.95}) * h;
    const Rgb glass = draw_muted_colour(draws), frame = draw_muted_colour(draws);
    const double border = draws.uniform({2, 8}), opacity = draws.uniform({0.5, 1});
    fill(image, upright_box(left - border, top - border, width + 2 * border, height + 2 * border), {frame, opacity});
    const std::int64_t columns = 1 + draws.below(3), rows = 1 + draws.below(3);
    const double pane_width = (width - border * double(columns - 1)) / double(columns);
    const double pane_height = (height - border * double(rows - 1)) / double(rows);
    if (pane_width < 4 || pane_height < 4) return;
    for (std::int64_t i = 0; i < columns; ++i)
        for (std::int64_t j = 0; j < rows; ++j) {
            const double x = left + double(i) * (pane_width + border), y = top + double(j) * (pane_height + border);
            fill(image, upright_box(x, y, pane_width, pane_height),
                 {shaded(glass, draws.uniform({0.8, 1.2})), opacity});
            if (draws.chance(0.4))  // a reflection
                fill(image, {{x, y}, {x + pane_width * 0.7, y}, {x, y + pane_height * 0.7}}, {{255, 255, 255}, 0.12});
        }
}

void draw_disc(Image& image, RandomDraws& draws) {
    const double side = double(std::min(image.height, image.width));
    const double x = draws.uniform() * double(image.width), y = draws.uniform() * double(image.height);
    const double radius = side * draws.uniform({0.01, 0.15}), flat = draws.uniform({0.6, 1});
    const std::int64_t corners = draws.chance(0.3) ? 3 + draws.below(5) : 32;
    Polygon polygon;
    const double turn = draws.uniform() * 2 * std::numbers::pi;
    for (std::int64_t i = 0; i < corners; ++i) {
        const double angle = turn + 2 * std::numbers::pi * double(i) / double(corners);
        polygon.push_back({x + radius * std::cos(angle), y + radius * flat * std::sin(angle)});
    }
    const Rgb colour = draws.chance(0.5) ? draw_muted_colour(draws) : draw_colour(draws, {0, 1}, {0.2, 1});
    fill(image, polygon, {colour, draws.uniform({0.2, 1})});
    if (!draws.chance(0.3)) return;
    for (Point& p : polygon) p = {x + (p.x - x) * 0.75, y + (p.y - y) * 0.75};
    fill(image, polygon, {draw_muted_colour(draws), draws.uniform({0.3, 1})});
}

void draw_cable(Image& image, RandomDraws& draws) {
    const double w = double(image.width), h = double(image.height), thickness = draws.uniform({0.8, 5}) / 2;
    const Point a{draws.uniform({-0.2, 1.2}) * w, draws.uniform({-0.2, 1.2}) * h};
    const Point b{draws.uniform({-0.2, 1.2}) * w, draws.uniform({-0.2, 1.2}) * h};
    const double length = std::max(std::hypot(b.x - a.x, b.y - a.y), 1.0);
    const double nx = -(b.y - a.y) / length * thickness, ny = (b.x - a.x) / length * thickness;
    fill(image, {{a.x + nx, a.y + ny}, {b.x + nx, b.y + ny}, {b.x - nx, b.y - ny}, {a.x - nx, a.y - ny}},
         {draw_muted_colour(draws), draws.uniform({0.4, 1})});
}

// Bars side by side, which are as regular as letters and yet none.
void draw_fence(Image& image, RandomDraws& draws) {
    const double bar = draws.uniform({1.5, 8}), gap = bar * draws.uniform({0.8, 3});
    const std::int64_t count = 4 + draws.below(20);
    const double height = draws.uniform({10, 90}), left = draws.uniform({-0.1, 0.9}) * double(image.width);
    const double top = draws.uniform({0, 0.95}) * double(image.height), lean = draws.uniform({-0.3, 0.3}) * height;
    const bool lying = draws.chance(0.3);
    const Rgb colour = draw_muted_colour(draws);
    const double opacity = draws.uniform({0.4, 1});
    for (std::int64_t i = 0; i < count; ++i) {
        const double x = double(i) * (bar + gap);
        Polygon slat = {{x, 0}, {x + bar, 0}, {x + bar + lean, height}, {x + lean, height}};
        for (Point& p : slat) {
            if (lying) std::swap(p.x, p.y);
            p = {p.x + left, p.y + top};
        }
        fill(image, slat, {colour, opacity});
    }
}

}  // namespace

Rgb from_hsv(double hue, double saturation, double value) {
    const auto channel = [&](double shift) {
        const double k = std::fmod(shift + hue * 6, 6.0);
        return to_byte(255 * value * (1 - saturation * std::clamp(std::min(k, 4 - k), 0.0, 1.0)));
    };
    return {channel(5), channel(3), channel(1)};
}

Rgb draw_colour(RandomDraws& draws, RandomRange saturation, RandomRange value) {
    const double hue = draws.uniform(), s = draws.uniform(saturation), v = draws.uniform(value);
    return from_hsv(hue, s, v);
}

Rgb draw_muted_colour(RandomDraws& draws) {
    const double u = draws.uniform();
    return draw_colour(draws, {0, draws.chance(0.8) ? 0.45 * u : u}, {0.12, 0.97});
}

Rgb draw_contrasting_colour(RandomDraws& draws, double behind, double contrast) {
    for (int attempt = 0; attempt < 12; ++attempt) {
        const double u = draws.uniform();
        const bool plain = draws.chance(0.45);  // near black or near white
        const double value = plain ? (draws.chance(0.5) ? 0.15 * u : 1 - 0.12 * u) : draws.uniform({0.1, 1});
        const Rgb colour = draw_colour(draws, plain ? RandomRange{0, 0.12} : RandomRange{0.3, 1}, {value, value});
        if (std::abs(luma(colour) - behind) >= contrast) return colour;
    }
    return behind < 128 ? Rgb{250, 250, 245} : Rgb{12, 12, 16};
}

Image draw_background(std::int64_t height, std::int64_t width, RandomDraws& draws) {
    Image image = draw_wall(height, width, draws);
    if (draws.chance(0.35)) draw_courses(image, draws);
    if (draws.chance(0.3)) draw_ground(image, draws);
    const std::int64_t objects = draws.below(12);
    for (std::int64_t i = 0; i < objects; ++i) {
        const double kind = draws.uniform();
        if (kind < 0.3)
            draw_window(image, draws);
        else if (kind < 0.55)
            draw_disc(image, draws);
        else if (kind < 0.8)
            draw_cable(image, draws);
        else
            draw_fence(image, draws);
    }
    return image;
}

Brightness brightness_of(const Image& image, const PixelBox& box) {
    const std::int64_t top = std::max<std::int64_t>(box.top, 0), bottom = std::min(box.top + box.height, image.height);
    const std::int64_t left = std::max<std::int64_t>(box.left, 0), right = std::min(box.left + box.width, image.width);
    double sum = 0, squares = 0, count = 0;
    for (std::int64_t y = top; y < bottom; y += 2)
        for (std::int64_t x = left; x < right; x += 2) {
            const std::uint8_t* p = image.at(y, x);
            const double value = luma({p[0], p[1], p[2]});
            sum += value, squares += value * value, ++count;
        }
    if (count == 0) return {};
    return {sum / count, std::sqrt(std::max(squares / count - sum / count * (sum / count), 0.0))};
}

}  // namespace invar::scene
