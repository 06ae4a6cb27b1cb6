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

// An image turned about its centre, on a canvas that holds all of it, and perhaps seen in a mirror then.
struct Canvas {
    Canvas(ImageSize image, double degrees, bool mirrored) : flip(mirrored) {
        const double angle = degrees * std::numbers::pi / 180;
        c = std::cos(angle), s = std::sin(angle);
        const double height = double(image.height), width = double(image.width);
        if (degrees == 0)
            size = image;
        else
            size = {std::int64_t(std::ceil(width * std::abs(s) + height * std::abs(c))),
                    std::int64_t(std::ceil(width * std::abs(c) + height * std::abs(s)))};
        from = {width / 2, height / 2}, to = {double(size.width) / 2, double(size.height) / 2};
    }

    // A place of the image on the canvas.
    detect::Point operator()(const detect::Point& p) const {
        const double x = p.x - from.x, y = p.y - from.y, turned = to.x + c * x + s * y;
        return {flip ? double(size.width) - turned : turned, to.y - s * x + c * y};
    }
    // From places of a part of the canvas, resized by these factors, to places of the image, resized by those.
    Matrix3 source_of(const PixelBox& box, double by_x, double by_y, double image_by_x, double image_by_y) const {
        const double side = flip ? -1 : 1;  // x of the canvas, before it was mirrored, is edge + side * u / by_x
        const double edge = flip ? double(size.width - box.left) : double(box.left);
        const double x = edge - to.x, y = double(box.top) - to.y;
        return {image_by_x * c * side / by_x,
                -image_by_x * s / by_y,
                image_by_x * (c * x - s * y + from.x),
                image_by_y * s * side / by_x,
                image_by_y * c / by_y,
                image_by_y * (s * x + c * y + from.y),
                0,
                0,
                1};
    }

    bool flip;
    double c = 1, s = 0;
    ImageSize size;
    detect::Point from, to;  // the centres
};

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

// Where a box of the canvas goes on the square: resized by one factor, so that it fits.
struct Placement {
    Placement(const PixelBox& part, std::int64_t side, double times) : box(part) {
        const double factor = times * double(side) / double(std::max(box.height, box.width));
        const auto length = [&](std::int64_t n) {
            return std::clamp<std::int64_t>(std::llround(double(n) * factor), 1, side);
        };
        inner = {length(box.height), length(box.width)};
        by_x = double(inner.width) / double(box.width), by_y = double(inner.height) / double(box.height);
    }
    detect::Point operator()(const detect::Point& p) const {
        return {double(left) + (p.x - double(box.left)) * by_x, double(top) + (p.y - double(box.top)) * by_y};
    }

    PixelBox box;
    ImageSize inner;
    double by_x = 1, by_y = 1;
    std::int64_t left = 0, top = 0;  // of the inner image on the square
};

// The pixels of a part of the canvas. Before it is turned an image is made as small as the result, so that each pixel
// is an average of all that it stands for.
Image pixels_of(const Image& image, const Canvas& canvas, const Placement& place) {
    const PixelBox& box = place.box;
    if (canvas.s == 0) {
        const std::int64_t left = canvas.flip ? image.width - box.left - box.width : box.left;
        Image out =
            resize(image, RealBox{double(box.top), double(left), double(box.height), double(box.width)}, place.inner);
        if (canvas.flip) flip_horizontally(out);
        return out;
    }
    if (place.by_x >= 1 || place.by_y >= 1)
        return warp(image, canvas.source_of(box, place.by_x, place.by_y, 1, 1), place.inner);
    const auto smaller = [](std::int64_t n, double by) {
        return std::max<std::int64_t>(1, std::llround(double(n) * by));
    };
    const Image small = resize(image, {smaller(image.height, place.by_y), smaller(image.width, place.by_x)});
    const double by_x = double(small.width) / double(image.width), by_y = double(small.height) / double(image.height);
    return warp(small, canvas.source_of(box, place.by_x, place.by_y, by_x, by_y), place.inner);
}

// What the square shows of texts on the canvas.
std::vector<TextRegion> placed_texts(std::vector<TextRegion> texts, const Placement& place) {
    std::erase_if(texts, [&](const TextRegion& text) { return text.polygon.empty() || !lies_in(text, place.box); });
    move_points(texts, place);
    return texts;
}

}  // namespace

void check_options(const TextAugmentOptions& o) {
    check<UsageError>(o.scale.low > 0 && o.scale.low <= o.scale.high && o.scale.high <= 100,
                      "data.scale=[{}, {}], expected two factors above 0 and at most 100, the smaller first", o.scale.low,
                      o.scale.high);
}

void draw_outline(Image& image, const detect::Polygon& polygon, Rgb colour, double thickness) {
    std::vector<ImagePoint> corners;
    for (const detect::Point& point : polygon) corners.push_back({point.x, point.y});
    draw_polygon(image, corners, colour, thickness);
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
    const Placement place({0, 0, whole.image.height, whole.image.width}, size, 1);
    TextImage view{Image(size, size), placed_texts(whole.texts, place)};
    paste(view.image, resize(whole.image, place.inner), 0, 0);
    return view;
}

RealBox fitted_box(ImageSize image, std::int64_t size) {
    const Placement place({0, 0, image.height, image.width}, size, 1);
    return {0, 0, double(size) / place.by_y, double(size) / place.by_x};
}

TextImage augmented_view(const TextImage& whole, std::int64_t size, const TextAugmentOptions& options, RngState rng) {
    RandomDraws draws(rng);
    const double degrees = draws.uniform({-options.degrees, options.degrees});
    const Canvas canvas(whole.image.size(), degrees, draws.chance(options.flip));
    std::vector<TextRegion> texts = whole.texts;
    move_points(texts, canvas);
    if (canvas.flip)
        for (TextRegion& text : texts) std::ranges::reverse(text.polygon);  // clockwise again
    const double times = std::exp(draws.uniform({std::log(options.scale.low), std::log(options.scale.high)}));
    const double longer = double(std::max(canvas.size.height, canvas.size.width));
    const auto side = std::int64_t(std::ceil(longer / std::max(1.0, times)));
    Placement place(crop_between_texts(canvas.size, texts, {side, side}, draws), size, std::min(1.0, times));
    place.left = draws.below(size - place.inner.width + 1), place.top = draws.below(size - place.inner.height + 1);
    TextImage view{Image(size, size), placed_texts(std::move(texts), place)};
    paste(view.image, pixels_of(whole.image, canvas, place), place.top, place.left);
    const auto factor = [&](double by) { return draws.uniform({std::max(0.0, 1 - by), 1 + by}); };
    if (options.brightness > 0) adjust_brightness(view.image, factor(options.brightness));
    if (options.contrast > 0) adjust_contrast(view.image, factor(options.contrast));
    if (options.saturation > 0) adjust_saturation(view.image, factor(options.saturation));
    return view;
}

}  // namespace invar
