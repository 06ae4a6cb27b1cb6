#include "invar/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/data/image_set.h"
#include "invar/data/registry.h"

namespace invar {

namespace {

// Philox streams of their own, apart from those of dropout and initialisers, which may use the same seed.
constexpr std::uint64_t kPatternStream = 0x7061747465726e00;
constexpr std::uint64_t kNoiseStream = 0x6e6f697365000000;

constexpr std::int64_t kMaxSamples = std::int64_t(1) << 31;
constexpr std::int64_t kMaxSide = std::int64_t(1) << 14;
constexpr std::int64_t kMaxPatternValues = std::int64_t(1) << 28;
constexpr int kWaves = 4;
constexpr double kWaveHeight = 0.12;  // pixels stay near [0, 1]
constexpr double kNoiseHeight = 0.3;

void check_range(const char* name, std::int64_t value, std::int64_t most) {
    check<UsageError>(value >= 1 && value <= most, "synthetic data: {} is {}, expected 1 to {}", name, value, most);
}

// A class's pattern in one channel: a few long waves, so that it survives pooling.
void draw_pattern(std::uint64_t seed, std::uint64_t number, const Shape& shape, std::int64_t channel, double* out) {
    for (int wave = 0; wave < kWaves; ++wave) {
        const Random4 r = philox(seed, number * kWaves + std::uint64_t(wave), kPatternStream);
        const double rows = 1 + r.v[0] % 3, columns = 1 + r.v[1] % 3;
        const double slant = (r.v[3] & 1) != 0 ? 1.0 : -1.0;
        const double phase = double(to_unit(r.v[2]));
        for (std::int64_t y = 0; y < shape[0]; ++y) {
            for (std::int64_t x = 0; x < shape[1]; ++x) {
                const double turns =
                    rows * double(y) / double(shape[0]) + slant * columns * double(x) / double(shape[1]);
                out[(y * shape[1] + x) * shape[2] + channel] +=
                    kWaveHeight * std::cos(2.0 * std::numbers::pi * (turns + phase));
            }
        }
    }
}

}  // namespace

SyntheticDataset::SyntheticDataset(const SyntheticOptions& options, Split split, std::uint64_t seed)
    : seed_(seed),
      split_(split),
      size_(split == Split::train ? options.size : std::max<std::int64_t>(1, options.size / 5)),
      shape_{options.height, options.width, options.channels},
      classes_(options.classes),
      mean_(options.mean),
      std_(options.std),
      noise_(float(kNoiseHeight / options.std)) {
    check_normalisation(options.mean, options.std);
    check_range("size", options.size, kMaxSamples);
    check_range("height", options.height, kMaxSide);
    check_range("width", options.width, kMaxSide);
    check_range("channels", options.channels, kMaxSide);
    check_range("classes", options.classes, kMaxPatternValues);
    const std::int64_t per_sample = shape_.numel();
    check<UsageError>(per_sample <= kMaxPatternValues / classes_,
                      "synthetic data: {} classes of {} values each, expected at most {} in all", classes_, per_sample,
                      kMaxPatternValues);

    patterns_ = std::make_unique<Pattern[]>(std::size_t(classes_));
}

const float* SyntheticDataset::pattern_of(std::int64_t label) const {
    Pattern& pattern = patterns_[std::size_t(label)];
    std::call_once(pattern.drawn, [&] {
        std::vector<double> drawn(std::size_t(shape_.numel()), 0.5);
        for (std::int64_t c = 0; c < shape_[2]; ++c)
            draw_pattern(seed_, std::uint64_t(label * shape_[2] + c), shape_, c, drawn.data());
        pattern.values.reserve(drawn.size());
        for (const double value : drawn) pattern.values.push_back(float((value - mean_) / std_));
    });
    return pattern.values.data();
}

Batch SyntheticDataset::read(std::span<const std::int64_t> indices) const {
    Batch batch = image_batch(std::int64_t(indices.size()), shape_);
    float* x = batch["x"].data<float>();
    std::int64_t* y = batch["y"].data<std::int64_t>();
    const std::int64_t per_sample = shape_.numel();
    const std::uint64_t draws = std::uint64_t(per_sample + 3) / 4;
    const std::uint64_t stream = kNoiseStream + std::uint64_t(split_);
    for (const std::int64_t index : indices) {
        check(index >= 0 && index < size_, "synthetic: sample {} does not exist; it has {}", index, size_);
        const std::int64_t label = index % classes_;
        const float* pattern = pattern_of(label);
        for (std::uint64_t draw = 0; draw < draws; ++draw) {
            const Random4 r = philox(seed_, std::uint64_t(index) * draws + draw, stream);
            const std::int64_t first = std::int64_t(4 * draw);
            const std::int64_t count = std::min<std::int64_t>(4, per_sample - first);
            for (std::int64_t i = 0; i < count; ++i) {
                x[first + i] = pattern[first + i] + noise_ * (2.0f * to_unit(r.v[i]) - 1.0f);
            }
        }
        x += per_sample;
        *y++ = label;
    }
    return batch;
}

namespace {

using S = SyntheticOptions;
const RegisterData<S> kSynthetic{
    "synthetic",
    "Made on the fly from the seed; needs no files.",
    [](const S& options, Split split, std::uint64_t seed) {
        return std::make_shared<SyntheticDataset>(options, split, seed);
    },
    {key("size", &S::size, within(1, 1e9), "Training samples; a fifth of it to validate on."),
     key("height", &S::height, within(1, 1 << 14), "Rows of an image."),
     key("width", &S::width, within(1, 1 << 14), "Columns of an image."),
     key("channels", &S::channels, within(1, 1 << 12), "Channels of an image."),
     key("classes", &S::classes, within(1, 1 << 20), "Classes to tell apart."),
     key("mean", &S::mean, any(), "A pixel v in [0, 1] becomes (v - mean) / std."),
     key("std", &S::std, above(0), "See mean.")},
    [](const S& options) {
        return DataInfo{{options.height, options.width, options.channels}, options.classes};
    }};

}  // namespace

}  // namespace invar
