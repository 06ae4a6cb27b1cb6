// Augmentation: an image seen another way in each epoch. All choices are a function of (seed, epoch, sample), so that a
// run is the same whatever thread makes which image, and a resumed one goes on with the same pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "invar/core/rng.h"
#include "invar/image/decode.h"
#include "invar/image/image.h"

namespace invar {

struct RandomRange {
    double low = 0;
    double high = 0;
    bool operator==(const RandomRange&) const = default;
};

// Of the transforms' names and defaults in torchvision; what is 0 is not done.
struct AugmentOptions {
    ImageSize size{224, 224};             // of the result
    RandomRange scale{0.08, 1};           // RandomResizedCrop: part of the image's area
    RandomRange ratio{3.0 / 4, 4.0 / 3};  // width over height
    double flip = 0.5;                    // probability of left for right
    double degrees = 0;                   // rotated by at most that to either side
    double brightness = 0;                // ColorJitter: a factor within 1 - x and 1 + x
    double contrast = 0;
    double saturation = 0;
    double hue = 0;                 // turned by at most that to either side; 0.5 is any colour
    double grey = 0;                // probability of no colours at all
    double blur = 0;                // probability of a Gaussian blur
    std::int64_t blur_kernel = 23;  // pixels it spans, odd
    RandomRange blur_sigma{0.1, 2};
    double noise = 0;  // deviation, in units of a pixel's 0 to 255
    Rgb fill{};        // what a rotation leaves bare
    // A JPEG is decoded at a half, a quarter or an eighth where that leaves the crop this many times the result's size:
    // 2 is hard to tell from exact, 1 is faster, 0 never does.
    double reducing_gap = 2;
};
void check_options(const AugmentOptions& options);

// The numbers behind the augmentation of one sample in one epoch.
RngState augment_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample);

// Random numbers one after the other from a state.
class RandomDraws {
  public:
    explicit RandomDraws(RngState state) : state_(state) {}
    double uniform();  // in [0, 1)
    double uniform(RandomRange range) { return range.low + (range.high - range.low) * uniform(); }
    bool chance(double probability) { return uniform() < probability; }
    std::int64_t below(std::int64_t count);  // 0 to count - 1
    // What is left for whoever needs many.
    RngState rest() const { return {state_.seed, state_.offset + 1}; }

  private:
    RngState state_;
};

// Ten attempts at an area and a ratio that fit; then the largest box in the middle that keeps to the ratios.
PixelBox random_resized_crop(ImageSize image, RandomRange scale, RandomRange ratio, RandomDraws& draws);

// What was chosen for one image. Choices need its size alone, so that a JPEG is decoded only where it is seen.
struct AugmentChoices {
    enum class Jitter { brightness, contrast, saturation, hue };
    PixelBox box;
    bool flip = false;
    double degrees = 0;
    std::vector<std::pair<Jitter, double>> jitter;  // in the order they are applied
    bool grey = false;
    std::optional<double> blur_sigma;
    RngState noise;
};
AugmentChoices choose(ImageSize image, const AugmentOptions& options, RngState rng);

Image augment(const Image& image, const AugmentOptions& options, RngState rng);
// The same from a file's bytes; the same pixels too, unless a JPEG is large enough to be decoded at a smaller scale.
Image augment(std::span<const std::uint8_t> bytes, const std::string& name, const AugmentOptions& options, RngState rng,
              const DecodeLimits& limits = {});

// What validation sees: the middle of the image, its shorter side resized first (256 for 224, as is usual).
Image centre_view(const Image& image, std::int64_t shorter_side, ImageSize size);
Image centre_view(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t shorter_side,
                  ImageSize size, double reducing_gap = 2, const DecodeLimits& limits = {});

}  // namespace invar
