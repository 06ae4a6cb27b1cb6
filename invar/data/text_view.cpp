#include "invar/data/text_view.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "invar/core/error.h"
#include "invar/image/colour.h"
#include "invar/image/draw.h"
#include "invar/image/transform.h"

namespace invar {

using detect::Bounds;
using detect::TextRegion;

namespace {

template <class Move>
void move_points(std::vector<TextRegion>& texts, Move move) {
    for (TextRegion& text : texts)
        for (detect::Point& point : text.polygon) point = move(point);
}

// On a canvas that holds all of it.
TextImage rotated(const TextImage& whole, double degrees) {
    const double angle = degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
    const double height = double(whole.image.height), width = double(whole.image.width);
    const ImageSize size{std::int64_t(std::ceil(width * std::abs(s) + height * std::abs(c))),
                         std::int64_t(std::ceil(width * std::abs(c) + height * std::abs(s)))};
    const double from_x = width / 2, from_y = height / 2, to_x = double(size.width) / 2, to_y = double(size.height) / 2;
    const Matrix3 source_of{c,  -s, from_x - c * to_x + s * to_y,  //
                            s,  c,  from_y - s * to_x - c * to_y,  //
                            0., 0., 1.};
    TextImage turned{warp(whole.image, source_of, size), whole.texts};
    move_points(turned.texts, [&](const detect::Point& p) {
        const double x = p.x - from_x, y = p.y - from_y;
        return detect::Point{to_x + c * x + s * y, to_y - s * x + c * y};
    });
    return turned;
}

void flip(TextImage& view) {
    flip_horizontally(view.image);
    const double width = double(view.image.width);
    move_points(view.texts, [&](const detect::Point& p) { return detect::Point{width - p.x, p.y}; });
    for (TextRegion& text : view.texts) std::ranges::reverse(text.polygon);  // clockwise again
}

// Borders between columns (or rows) that run through no text: 0 and `length` always do not.
std::vector<std::int64_t> free_borders(std::int64_t length, const std::vector<TextRegion>& texts, bool columns) {
    std::vector<std::int64_t> starts(std::size_t(length) + 2, 0);
    for (const TextRegion& text : texts) {
        if (text.polygon.empty()) continue;
        const Bounds bounds = detect::bounds_of(text.polygon);
        const double low = columns ? bounds.left : bounds.top, high = columns ? bounds.right : bounds.bottom;
        const double most = double(length);
        const auto first = std::int64_t(std::floor(std::clamp(low, -1.0, most))) + 1;  // inside: low < border < high
        const auto last = std::int64_t(std::ceil(std::clamp(high, 0.0, most + 1))) - 1;
        if (first > last) continue;
        ++starts[std::size_t(first)], --starts[std::size_t(std::min(last, length)) + 1];
    }
    std::vector<std::int64_t> free;
    std::int64_t covered = 0;
    for (std::int64_t border = 0; border <= length; ++border) {
        covered += starts[std::size_t(border)];
        if (covered == 0 || border == 0 || border == length) free.push_back(border);
    }
    return free;
}

std::int64_t nearest(const std::vector<std::int64_t>& borders, std::int64_t wanted) {
    const auto above = std::ranges::lower_bound(borders, wanted);
    if (above == borders.begin()) return borders.front();
    if (above == borders.end()) return borders.back();
    return *above - wanted < wanted - *(above - 1) ? *above : *(above - 1);
}

struct Stretch {
    std::int64_t first = 0, length = 0;
};

Stretch random_stretch(const std::vector<std::int64_t>& borders, std::int64_t wanted, RandomDraws& draws) {
    const std::int64_t length = borders.back();
    wanted = std::clamp<std::int64_t>(wanted, 1, length);
    const std::int64_t first = draws.below(length - wanted + 1);
    const std::int64_t from = nearest(borders, first);
    return {from, nearest(borders, first + wanted) - from};
}

bool lies_in(const TextRegion& text, const PixelBox& box) {
    const Bounds b = detect::bounds_of(text.polygon);
    return b.left < double(box.left + box.width) && b.right > double(box.left) &&
           b.top < double(box.top + box.height) && b.bottom > double(box.top);
}

// A box of the image on a black square: resized by one factor, so that it fits, at a place given by shares of the room.
TextImage placed(const TextImage& from, const PixelBox& box, std::int64_t size, double times, double right,
                 double down) {
    const double factor = times * double(size) / double(std::max(box.height, box.width));
    const auto side = [&](std::int64_t n) {
        return std::clamp<std::int64_t>(std::llround(double(n) * factor), 1, size);
    };
    const ImageSize inner{side(box.height), side(box.width)};
    const RealBox real{double(box.top), double(box.left), double(box.height), double(box.width)};
    TextImage view{Image(size, size), {}};
    const std::int64_t left = std::llround(right * double(size - inner.width));
    const std::int64_t top = std::llround(down * double(size - inner.height));
    paste(view.image, resize(from.image, real, inner), top, left);
    const double by_x = double(inner.width) / real.width, by_y = double(inner.height) / real.height;
    for (const TextRegion& text : from.texts)
        if (!text.polygon.empty() && lies_in(text, box)) view.texts.push_back(text);
    move_points(view.texts, [&](const detect::Point& p) {
        return detect::Point{double(left) + (p.x - real.left) * by_x, double(top) + (p.y - real.top) * by_y};
    });
    return view;
}

}  // namespace

void check_options(const TextAugmentOptions& o) {
    check<UsageError>(o.scale.low > 0 && o.scale.low <= o.scale.high && o.scale.high <= 100,
                      "data.scale=[{}, {}], expected two factors above 0, the smaller first", o.scale.low,
                      o.scale.high);
}

PixelBox crop_between_texts(ImageSize image, const std::vector<TextRegion>& texts, ImageSize wanted,
                            RandomDraws& draws) {
    const std::vector<std::int64_t> columns = free_borders(image.width, texts, true);
    const std::vector<std::int64_t> rows = free_borders(image.height, texts, false);
    wanted = {std::min(wanted.height, image.height), std::min(wanted.width, image.width)};
    const bool any = std::ranges::any_of(texts, [](const TextRegion& text) { return !text.dont_care; });
    constexpr int kAttempts = 10;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const Stretch across = random_stretch(columns, wanted.width, draws);
        const Stretch down = random_stretch(rows, wanted.height, draws);
        const PixelBox box{down.first, across.first, down.length, across.length};
        if (2 * box.width < wanted.width || 2 * box.height < wanted.height) continue;
        const auto counts = [&](const TextRegion& text) { return !text.dont_care && lies_in(text, box); };
        if (!any || std::ranges::any_of(texts, counts)) return box;
    }
    return {0, 0, image.height, image.width};
}

TextImage fitted_view(const TextImage& whole, std::int64_t size) {
    return placed(whole, {0, 0, whole.image.height, whole.image.width}, size, 1, 0, 0);
}

TextImage augmented_view(const TextImage& whole, std::int64_t size, const TextAugmentOptions& options, RngState rng) {
    RandomDraws draws(rng);
    const double degrees = draws.uniform({-options.degrees, options.degrees});
    TextImage turned = options.degrees > 0 ? rotated(whole, degrees) : whole;
    if (draws.chance(options.flip)) flip(turned);
    const double times = std::exp(draws.uniform({std::log(options.scale.low), std::log(options.scale.high)}));
    const ImageSize all = turned.image.size();
    const auto side = std::int64_t(std::ceil(double(std::max(all.height, all.width)) / std::max(1.0, times)));
    const PixelBox box = crop_between_texts(all, turned.texts, {side, side}, draws);
    const double right = draws.uniform(), down = draws.uniform();
    TextImage view = placed(turned, box, size, std::min(1.0, times), right, down);
    const auto factor = [&](double by) { return draws.uniform({std::max(0.0, 1 - by), 1 + by}); };
    if (options.brightness > 0) adjust_brightness(view.image, factor(options.brightness));
    if (options.contrast > 0) adjust_contrast(view.image, factor(options.contrast));
    if (options.saturation > 0) adjust_saturation(view.image, factor(options.saturation));
    return view;
}

}  // namespace invar
