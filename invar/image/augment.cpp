#include "invar/image/augment.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/image/colour.h"
#include "invar/image/transform.h"

namespace invar {

void check_options(const AugmentOptions& o) {
    constexpr std::int64_t kMostSide = 16384;
    check<UsageError>(o.size.height > 0 && o.size.width > 0 && o.size.height <= kMostSide && o.size.width <= kMostSide,
                      "augmented images of {} x {} pixels, expected sides of 1 to {}", o.size.height, o.size.width,
                      kMostSide);
    check<UsageError>(o.scale.low > 0 && o.scale.low <= o.scale.high && o.scale.high <= 1,
                      "crops of {} to {} of an image, expected parts of it, the smaller first", o.scale.low,
                      o.scale.high);
    check<UsageError>(o.ratio.low > 0 && o.ratio.low <= o.ratio.high && o.ratio.high < 1e3,
                      "crops {} to {} times as wide as high, expected more than 0, the smaller first", o.ratio.low,
                      o.ratio.high);
    const auto within = [](double value, double most, const char* name) {
        check<UsageError>(value >= 0 && value <= most, "augmentation by {} {}, expected 0 to {}", name, value, most);
    };
    within(o.flip, 1, "flip"), within(o.grey, 1, "grey"), within(o.blur, 1, "blur");
    within(o.degrees, 360, "degrees"), within(o.hue, 0.5, "hue"), within(o.noise, 1000, "noise");
    within(o.brightness, 100, "brightness"), within(o.contrast, 100, "contrast");
    within(o.saturation, 100, "saturation"), within(o.reducing_gap, 100, "reducing_gap");
    check<UsageError>(
        o.blur == 0 || (o.blur_sigma.low > 0 && o.blur_sigma.low <= o.blur_sigma.high && o.blur_kernel > 0 &&
                        o.blur_kernel % 2 == 1 && o.blur_kernel / 2 < std::min(o.size.height, o.size.width)),
        "a blur of sigma {} to {} over {} pixels, expected more than 0 and an odd number less than twice "
        "the shorter side",
        o.blur_sigma.low, o.blur_sigma.high, o.blur_kernel);
}

RngState augment_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
    // A sample's numbers are those of a seed of its own, which these three make.
    constexpr std::uint64_t kImages = 0x696d'6167'6573'0000;  // apart from what the same seed gives to others
    const Random4 key = philox(seed, sample, kImages ^ epoch);
    return {std::uint64_t(key.v[0]) << 32 | key.v[1], 0};
}

double RandomDraws::uniform() {
    const Random4 random = philox(state_.seed, state_.offset++);
    const std::uint64_t bits = std::uint64_t(random.v[0]) << 32 | random.v[1];
    return double(bits >> 11) * 0x1p-53;
}

std::int64_t RandomDraws::below(std::int64_t count) {
    return std::min(std::int64_t(uniform() * double(count)), count - 1);
}

PixelBox random_resized_crop(ImageSize image, RandomRange scale, RandomRange ratio, RandomDraws& draws) {
    const double area = double(image.height) * double(image.width);
    const RandomRange log_ratio{std::log(ratio.low), std::log(ratio.high)};
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double target = area * draws.uniform(scale);
        const double shape = std::exp(draws.uniform(log_ratio));
        const std::int64_t width = std::llround(std::sqrt(target * shape));
        const std::int64_t height = std::llround(std::sqrt(target / shape));
        if (width <= 0 || height <= 0 || width > image.width || height > image.height) continue;
        const std::int64_t top = draws.below(image.height - height + 1);
        const std::int64_t left = draws.below(image.width - width + 1);
        return {top, left, height, width};
    }
    const double shape = double(image.width) / double(image.height);
    std::int64_t width = image.width, height = image.height;
    if (shape < ratio.low) height = std::llround(double(width) / ratio.low);
    if (shape > ratio.high) width = std::llround(double(height) * ratio.high);
    height = std::clamp<std::int64_t>(height, 1, image.height), width = std::clamp<std::int64_t>(width, 1, image.width);
    return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

AugmentChoices choose(ImageSize image, const AugmentOptions& options, RngState rng) {
    check_options(options);
    RandomDraws draws(rng);
    AugmentChoices choices;
    choices.box = random_resized_crop(image, options.scale, options.ratio, draws);
    choices.flip = draws.chance(options.flip);
    if (options.degrees > 0) choices.degrees = draws.uniform({-options.degrees, options.degrees});

    using Jitter = AugmentChoices::Jitter;
    const auto factor = [&](Jitter jitter, double by) {
        if (by > 0) choices.jitter.emplace_back(jitter, draws.uniform({std::max(0.0, 1 - by), 1 + by}));
    };
    factor(Jitter::brightness, options.brightness);
    factor(Jitter::contrast, options.contrast);
    factor(Jitter::saturation, options.saturation);
    if (options.hue > 0) choices.jitter.emplace_back(Jitter::hue, draws.uniform({-options.hue, options.hue}));
    for (std::size_t i = choices.jitter.size(); i > 1; --i)
        std::swap(choices.jitter[i - 1], choices.jitter[std::size_t(draws.below(std::int64_t(i)))]);

    choices.grey = options.grey > 0 && draws.chance(options.grey);
    if (options.blur > 0 && draws.chance(options.blur)) choices.blur_sigma = draws.uniform(options.blur_sigma);
    choices.noise = draws.rest();
    return choices;
}

namespace {

void jitter(Image& image, AugmentChoices::Jitter kind, double by) {
    switch (kind) {
        case AugmentChoices::Jitter::brightness:
            return adjust_brightness(image, by);
        case AugmentChoices::Jitter::contrast:
            return adjust_contrast(image, by);
        case AugmentChoices::Jitter::saturation:
            return adjust_saturation(image, by);
        case AugmentChoices::Jitter::hue:
            return adjust_hue(image, by);
    }
}

// All that comes after the crop.
Image finish(const Image& image, const RealBox& box, const AugmentOptions& options, const AugmentChoices& choices) {
    Image out = resize(image, box, options.size);
    if (choices.flip) flip_horizontally(out);
    if (choices.degrees != 0) out = rotate(out, choices.degrees, options.fill);
    for (const auto& [kind, by] : choices.jitter) jitter(out, kind, by);
    if (choices.grey) adjust_saturation(out, 0);
    if (choices.blur_sigma) out = gaussian_blur(out, *choices.blur_sigma, options.blur_kernel);
    if (options.noise > 0) add_noise(out, options.noise, choices.noise);
    return out;
}

RealBox real(const PixelBox& box) {
    return {double(box.top), double(box.left), double(box.height), double(box.width)};
}

std::optional<ImageSize> with_gap(ImageSize size, double gap) {
    if (gap <= 0) return {};
    const auto times = [&](std::int64_t side) { return std::int64_t(std::ceil(double(side) * gap)); };
    return ImageSize{times(size.height), times(size.width)};
}

}  // namespace

Image augment(const Image& image, const AugmentOptions& options, RngState rng) {
    const AugmentChoices choices = choose(image.size(), options, rng);
    return finish(image, real(choices.box), options, choices);
}

Image augment(std::span<const std::uint8_t> bytes, const std::string& name, const AugmentOptions& options, RngState rng,
              const DecodeLimits& limits) {
    const AugmentChoices choices = choose(image_size(bytes, name, limits), options, rng);
    const DecodedRegion region =
        decode_region(bytes, name, choices.box, with_gap(options.size, options.reducing_gap), limits);
    return finish(region.image, region.box, options, choices);
}

Image centre_view(const Image& image, std::int64_t shorter_side, ImageSize size) {
    Image whole = resize(image, with_shorter_side(image.size(), shorter_side));
    return crop(whole, centre_box(whole.size(), size));
}

Image centre_view(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t shorter_side,
                  ImageSize size, double reducing_gap, const DecodeLimits& limits) {
    const ImageSize stored = image_size(bytes, name, limits);
    const ImageSize whole = with_shorter_side(stored, shorter_side);
    const DecodedRegion region =
        decode_region(bytes, name, {0, 0, stored.height, stored.width}, with_gap(whole, reducing_gap), limits);
    const PixelBox middle = centre_box(whole, size);
    constexpr std::int64_t kMuch = std::int64_t(1) << 24, kAround = 32;
    if (whole.height * whole.width <= kMuch) return crop(resize(region.image, region.box, whole), middle);
    // Of an image so long only what lies around its middle is made.
    const auto around = [](std::int64_t first, std::int64_t count, std::int64_t all) {
        const std::int64_t begin = std::max<std::int64_t>(0, first - kAround);
        return std::pair(begin, std::min(all, first + count + kAround) - begin);
    };
    const auto [top, height] = around(middle.top, middle.height, whole.height);
    const auto [left, width] = around(middle.left, middle.width, whole.width);
    const double by_y = region.box.height / double(whole.height), by_x = region.box.width / double(whole.width);
    const RealBox box{region.box.top + by_y * double(top), region.box.left + by_x * double(left), by_y * double(height),
                      by_x * double(width)};
    return crop(resize(region.image, box, {height, width}),
                {middle.top - top, middle.left - left, middle.height, middle.width});
}

}  // namespace invar
