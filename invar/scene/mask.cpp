#include "invar/scene/mask.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invar/image/transform.h"

namespace invar::scene {

namespace {

using detect::Point;
using detect::Polygon;

// Each edge adds to every pixel it crosses the area between it and the pixel's right side, and what remains of its
// height to the next one: a running sum along the row is then how far a pixel is inside.
class Accumulator {
  public:
    Accumulator(std::int64_t height, std::int64_t width)
        : height_(height), width_(width), sums_(std::size_t(height * width) + 2) {}

    // Both ends within the area.
    void edge(Point a, Point b) {
        if (a.y == b.y) return;
        const float direction = a.y < b.y ? 1.0f : -1.0f;
        if (a.y > b.y) std::swap(a, b);
        const double slope = (b.x - a.x) / (b.y - a.y);
        double x = a.x;
        const std::int64_t last = std::min(std::int64_t(std::ceil(b.y)), height_);
        for (std::int64_t row = std::int64_t(a.y); row < last; ++row) {
            const double from = std::max(double(row), a.y), to = std::min(double(row + 1), b.y);
            const double height = to - from, next = x + slope * height;
            cross(row, float(std::min(x, next)), float(std::max(x, next)), direction * float(height));
            x = next;
        }
    }

    Image sum() const {
        Image cover(height_, width_, 1);
        const float* from = sums_.data();
        float inside = 0;
        for (std::uint8_t& pixel : cover.pixels) {
            inside += *from++;
            pixel = std::uint8_t(std::min(std::abs(inside), 1.0f) * 255.0f + 0.5f);
        }
        return cover;
    }

  private:
    // An edge from column x0 to column x1 that covers `height` of one row.
    void cross(std::int64_t row, float x0, float x1, float height) {
        float* at = sums_.data() + row * width_;
        const float first = std::floor(x0), end = std::ceil(x1);
        at += std::int64_t(first);
        if (end <= first + 1) {  // within one pixel
            const float middle = (x0 + x1) / 2 - first;
            at[0] += height * (1 - middle), at[1] += height * middle;
            return;
        }
        const float per_column = height / (x1 - x0), left = 1 - (x0 - first), right = x1 - (end - 1);
        const float begin = per_column * left * left / 2;
        const std::int64_t columns = std::int64_t(end - first);
        float passed = begin;  // what the pixels up to here have covered
        at[0] += begin;
        for (std::int64_t i = 1; i < columns - 1; ++i) {
            const float cover = per_column * (left + float(i) - 0.5f);
            at[i] += cover - passed, passed = cover;
        }
        const float last = height - per_column * right * right / 2;
        at[columns - 1] += last - passed, at[columns] += height - last;
    }

    std::int64_t height_, width_;
    std::vector<float> sums_;
};

}  // namespace

Mask fill_contours(std::span<const Polygon> contours, std::int64_t margin) {
    double left = 1e9, top = 1e9, right = -1e9, bottom = -1e9;
    for (const Polygon& contour : contours)
        for (const Point& p : contour) {
            left = std::min(left, p.x), right = std::max(right, p.x);
            top = std::min(top, p.y), bottom = std::max(bottom, p.y);
        }
    if (!(left < right && top < bottom)) return {};
    Mask mask;
    mask.left = std::int64_t(std::floor(left)) - margin, mask.top = std::int64_t(std::floor(top)) - margin;
    // One pixel more to the right, where sums of the last column run out.
    const std::int64_t width = std::int64_t(std::ceil(right)) - mask.left + margin + 1;
    const std::int64_t height = std::int64_t(std::ceil(bottom)) - mask.top + margin;
    Accumulator accumulator(height, width);
    const double x = double(mask.left), y = double(mask.top);
    for (const Polygon& contour : contours)
        for (std::size_t i = 0, j = contour.size() - 1; i < contour.size(); j = i++)
            accumulator.edge({contour[j].x - x, contour[j].y - y}, {contour[i].x - x, contour[i].y - y});
    mask.cover = accumulator.sum();
    return mask;
}

void spread(Mask& mask, double radius) {
    const Image from = mask.cover;
    const std::int64_t reach = std::int64_t(radius);
    for (std::int64_t dy = -reach; dy <= reach; ++dy) {
        const std::int64_t across = std::int64_t(std::sqrt(radius * radius - double(dy * dy)));
        for (std::int64_t y = std::max<std::int64_t>(0, -dy); y < std::min(from.height, from.height - dy); ++y)
            for (std::int64_t dx = -across; dx <= across; ++dx) {
                const std::int64_t first = std::max<std::int64_t>(0, -dx), count = from.width - std::abs(dx);
                std::uint8_t* to = mask.cover.row(y) + first;
                const std::uint8_t* other = from.row(y + dy) + first + dx;
                for (std::int64_t x = 0; x < count; ++x) to[x] = std::max(to[x], other[x]);
            }
    }
}

void blur(Mask& mask, double sigma) {
    const std::int64_t radius =
        std::min({std::int64_t(std::ceil(sigma * 2.5)), mask.cover.height - 1, mask.cover.width - 1});
    if (sigma > 0.05 && radius > 0) mask.cover = gaussian_blur(mask.cover, sigma, 2 * radius + 1);
}

namespace {

struct Overlap {
    std::int64_t top, bottom, left, right;  // rows and columns of the image
};

Overlap overlap_of(const Image& image, const Mask& mask) {
    return {std::max<std::int64_t>(mask.top, 0), std::min(mask.top + mask.cover.height, image.height),
            std::max<std::int64_t>(mask.left, 0), std::min(mask.left + mask.cover.width, image.width)};
}

}  // namespace

void paint(Image& image, const Mask& mask, Rgb colour, double opacity) {
    const Overlap shared = overlap_of(image, mask);
    const int strength = int(opacity * 256 + 0.5), rgb[3] = {colour.r, colour.g, colour.b};
    for (std::int64_t y = shared.top; y < shared.bottom; ++y) {
        const std::uint8_t* cover = mask.cover.row(y - mask.top) - mask.left;
        std::uint8_t* row = image.row(y);
        for (std::int64_t x = shared.left; x < shared.right; ++x) {
            if (cover[x] == 0) continue;
            const int alpha = cover[x] * strength;  // of 255 * 256
            for (int c = 0; c < 3; ++c) {
                const int value = row[3 * x + c];
                row[3 * x + c] = std::uint8_t((value * 65280 + (rgb[c] - value) * alpha + 32640) / 65280);
            }
        }
    }
}

void merge_ink(Image& ink, const Mask& mask) {
    const Overlap shared = overlap_of(ink, mask);
    for (std::int64_t y = shared.top; y < shared.bottom; ++y) {
        const std::uint8_t* cover = mask.cover.row(y - mask.top) - mask.left;
        std::uint8_t* row = ink.row(y);
        for (std::int64_t x = shared.left; x < shared.right; ++x) row[x] = std::max(row[x], cover[x]);
    }
}

double luma(Rgb colour) {
    return 0.299 * colour.r + 0.587 * colour.g + 0.114 * colour.b;
}

}  // namespace invar::scene
