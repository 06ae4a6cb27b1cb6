#include "invar/image/colour.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

inline int grey_of(const std::uint8_t* rgb) {
    return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

// `base` moved towards the value, and beyond it where the factor is more than 1; fractions are dropped.
inline std::uint8_t blend(int base, int value, float factor) {
    return std::uint8_t(std::clamp(float(base) + factor * float(value - base), 0.0f, 255.0f));
}

void check_factor(double factor, const char* what) {
    check<UsageError>(factor >= 0 && factor < 1e6, "a factor of {} for the {}, expected 0 or more", factor, what);
}

// One base for all pixels makes blending a table.
void blend_all(Image& image, int base, double factor) {
    std::array<std::uint8_t, 256> table;
    for (int value = 0; value < 256; ++value) table[std::size_t(value)] = blend(base, value, float(factor));
    for (std::uint8_t& value : image.pixels) value = table[value];
}

struct Hsv {
    std::uint8_t hue, saturation, value;
};

inline Hsv to_hsv(const std::uint8_t* rgb) {
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    const int most = std::max({r, g, b}), range = most - std::min({r, g, b});
    if (range == 0) return {0, 0, std::uint8_t(most)};
    // Sixths of the circle: red is 0, green 2, blue 4. Digits are dropped below, so that the order of these operations
    // tells; it is Pillow's.
    const auto width = float(range);
    const auto below_most = [&](int channel) { return float(most - channel) / width; };
    float sixths;
    if (r == most)
        sixths = below_most(b) - below_most(g);
    else if (g == most)
        sixths = float(2.0 + below_most(r) - below_most(b));
    else
        sixths = float(4.0 + below_most(g) - below_most(r));
    const double turns = double(sixths) / 6.0 + 1.0;
    const auto hue = float(turns >= 1 ? turns - 1 : turns);
    return {std::uint8_t(double(hue) * 255.0), std::uint8_t(double(width / float(most)) * 255.0), std::uint8_t(most)};
}

inline void to_rgb(const Hsv& hsv, std::uint8_t* rgb) {
    if (hsv.saturation == 0) {
        rgb[0] = rgb[1] = rgb[2] = hsv.value;
        return;
    }
    const float sixths = float(hsv.hue) * 6.0f / 255.0f, saturation = float(hsv.saturation) / 255.0f;
    const int sector = int(sixths);
    const float part = sixths - float(sector), value = float(hsv.value);
    const auto faded = [&](float by) { return std::uint8_t(value * (1.0f - saturation * by) + 0.5f); };
    const std::uint8_t full = hsv.value, none = faded(1), falling = faded(part), rising = faded(1 - part);
    const std::uint8_t colours[6][3] = {{full, rising, none},  {falling, full, none}, {none, full, rising},
                                        {none, falling, full}, {rising, none, full},  {full, none, falling}};
    std::copy_n(colours[sector % 6], 3, rgb);
}

}  // namespace

Image to_grey(const Image& image) {
    if (image.channels == 1) return image;
    Image out(image.height, image.width, 1);
    const std::uint8_t* from = image.pixels.data();
    for (std::uint8_t& value : out.pixels) value = std::uint8_t(grey_of(from)), from += 3;
    return out;
}

void adjust_brightness(Image& image, double factor) {
    check_factor(factor, "brightness");
    blend_all(image, 0, factor);
}

void adjust_contrast(Image& image, double factor) {
    check_factor(factor, "contrast");
    if (image.pixels.empty()) return;
    std::int64_t sum = 0, count = image.height * image.width;
    if (image.channels == 1)
        for (const std::uint8_t value : image.pixels) sum += value;
    else
        for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += grey_of(&image.pixels[i]);
    blend_all(image, int((2 * sum + count) / (2 * count)), factor);
}

void adjust_saturation(Image& image, double factor) {
    check_factor(factor, "saturation");
    if (image.channels == 1) return;
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
        std::uint8_t* rgb = &image.pixels[i];
        const int grey = grey_of(rgb);
        for (int c = 0; c < 3; ++c) rgb[c] = blend(grey, rgb[c], float(factor));
    }
}

void adjust_hue(Image& image, double turn) {
    check<UsageError>(turn >= -0.5 && turn <= 0.5, "a hue turned by {}, expected -0.5 to 0.5", turn);
    if (image.channels == 1) return;
    const int shift = int(turn * 255);
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
        Hsv hsv = to_hsv(&image.pixels[i]);
        hsv.hue = std::uint8_t(hsv.hue + shift);
        to_rgb(hsv, &image.pixels[i]);
    }
}

}  // namespace invar
