#include "invar/image/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "invar/core/error.h"
#include "invar/image/resample.h"

namespace invar {

namespace {

void check_size(ImageSize size) {
    constexpr std::int64_t kMostSide = 1 << 20;
    check<UsageError>(size.height > 0 && size.width > 0 && size.height <= kMostSide && size.width <= kMostSide,
                      "an image cannot be made {} x {} pixels", size.height, size.width);
}

}  // namespace

Image resize(const Image& image, ImageSize size) {
    return resize(image, {0, 0, double(image.height), double(image.width)}, size);
}

Image resize(const Image& image, const RealBox& box, ImageSize size) {
    check_size(size);
    check<UsageError>(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                          box.top + box.height <= double(image.height) && box.left + box.width <= double(image.width),
                      "no box of {} x {} pixels at row {}, column {} in an image of {} x {}", box.height, box.width,
                      box.top, box.left, image.height, image.width);
    return filter(image, FilterTable::bilinear(box.left, box.width, image.width, size.width),
                  FilterTable::bilinear(box.top, box.height, image.height, size.height));
}

ImageSize with_shorter_side(ImageSize size, std::int64_t side) {
    if (size.height <= size.width) return {side, side * size.width / size.height};
    return {side * size.height / size.width, side};
}

Image crop(const Image& image, const PixelBox& box) {
    check<UsageError>(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                          box.height <= image.height - box.top && box.width <= image.width - box.left,
                      "no box of {} x {} pixels at row {}, column {} in an image of {} x {}", box.height, box.width,
                      box.top, box.left, image.height, image.width);
    Image out(box.height, box.width, image.channels);
    for (std::int64_t y = 0; y < box.height; ++y)
        std::memcpy(out.row(y), image.at(box.top + y, box.left), out.stride());
    return out;
}

PixelBox centre_box(ImageSize image, ImageSize box) {
    check<UsageError>(box.height <= image.height && box.width <= image.width,
                      "no box of {} x {} pixels in an image of {} x {}", box.height, box.width, image.height,
                      image.width);
    const auto margin = [](std::int64_t spare) { return std::int64_t(std::nearbyint(double(spare) / 2)); };
    return {margin(image.height - box.height), margin(image.width - box.width), box.height, box.width};
}

void flip_horizontally(Image& image) {
    for (std::int64_t y = 0; y < image.height; ++y) {
        std::uint8_t* left = image.row(y);
        if (image.channels == 1) {
            std::reverse(left, left + image.width);
            continue;
        }
        for (std::uint8_t* right = left + (image.width - 1) * 3; left < right; left += 3, right -= 3)
            for (int c = 0; c < 3; ++c) std::swap(left[c], right[c]);
    }
}

Image warp(const Image& image, const Matrix3& m, ImageSize size, Rgb fill) {
    check_size(size);
    Image out(size.height, size.width, image.channels);
    const std::uint8_t border[3] = {fill.r, fill.g, fill.b};
    const std::int64_t channels = image.channels;
    for (std::int64_t y = 0; y < size.height; ++y) {
        std::uint8_t* to = out.row(y);
        for (std::int64_t x = 0; x < size.width; ++x, to += channels) {
            const double at_x = double(x) + 0.5, at_y = double(y) + 0.5;
            const double depth = m[6] * at_x + m[7] * at_y + m[8];
            const double sx = (m[0] * at_x + m[1] * at_y + m[2]) / depth;
            const double sy = (m[3] * at_x + m[4] * at_y + m[5]) / depth;
            // Also where the depth is 0 and these are no numbers.
            if (!(sx >= 0 && sy >= 0 && sx < double(image.width) && sy < double(image.height))) {
                std::copy_n(border, channels, to);
                continue;
            }
            const double left = std::floor(sx - 0.5), top = std::floor(sy - 0.5);
            const float right_part = float(sx - 0.5 - left), lower_part = float(sy - 0.5 - top);
            const std::int64_t x0 = std::max<std::int64_t>(std::int64_t(left), 0),
                               y0 = std::max<std::int64_t>(std::int64_t(top), 0);
            const std::int64_t x1 = std::min(std::int64_t(left) + 1, image.width - 1);
            const std::int64_t y1 = std::min(std::int64_t(top) + 1, image.height - 1);
            const std::uint8_t *a = image.at(y0, x0), *b = image.at(y0, x1), *c = image.at(y1, x0),
                               *d = image.at(y1, x1);
            for (std::int64_t k = 0; k < channels; ++k) {
                const float upper = float(a[k]) + float(b[k] - a[k]) * right_part;
                const float lower = float(c[k]) + float(d[k] - c[k]) * right_part;
                to[k] = std::uint8_t(upper + (lower - upper) * lower_part + 0.5f);
            }
        }
    }
    return out;
}

Image rotate(const Image& image, double degrees, Rgb fill) {
    const double angle = degrees * std::numbers::pi / 180;
    // Quarter turns are to be exact, so that no border falls outside by a rounding error.
    const auto clean = [](double value) { return std::round(value * 1e15) / 1e15; };
    const double cosine = clean(std::cos(angle)), sine = clean(std::sin(angle));
    const double x = double(image.width) / 2, y = double(image.height) / 2;
    return warp(image, {cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y, 0, 0, 1},
                image.size(), fill);
}

Image gaussian_blur(const Image& image, double sigma, std::int64_t kernel) {
    check<UsageError>(sigma > 0 && sigma < 1e4, "a blur of sigma {}, expected more than 0 and less than 10000", sigma);
    check<UsageError>(kernel > 0 && kernel % 2 == 1, "a blur over {} pixels, expected an odd number", kernel);
    const std::int64_t radius = kernel / 2;
    check<UsageError>(
        radius < image.width && radius < image.height,
        "a blur over {} pixels reaches across an image of {} x {}; take fewer than twice its shorter side", kernel,
        image.height, image.width);
    return filter(image, FilterTable::gaussian(sigma, radius, image.width),
                  FilterTable::gaussian(sigma, radius, image.height));
}

void add_noise(Image& image, double deviation, RngState rng) {
    check<UsageError>(deviation >= 0 && deviation < 1e4, "noise of deviation {}, expected 0 to 10000", deviation);
    const auto scale = float(deviation);
    const std::size_t count = image.pixels.size();
    for (std::size_t i = 0; i < count; i += 4) {
        const Random4 random = philox(rng.seed, rng.offset + i / 4);
        float normal[4];
        for (int pair = 0; pair < 4; pair += 2) {  // after Box and Muller
            const float radius = std::sqrt(-2.0f * std::log(1.0f - to_unit(random.v[pair])));
            const float angle = 2.0f * std::numbers::pi_v<float> * to_unit(random.v[pair + 1]);
            normal[pair] = radius * std::cos(angle), normal[pair + 1] = radius * std::sin(angle);
        }
        for (std::size_t k = i; k < std::min(i + 4, count); ++k) {
            const float value = float(image.pixels[k]) + scale * normal[k - i];
            image.pixels[k] = std::uint8_t(std::clamp(std::floor(value + 0.5f), 0.0f, 255.0f));
        }
    }
}

}  // namespace invar
