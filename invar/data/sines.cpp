// Numbers to predict, made from the seed: x is uniform in [-1, 1], y a fixed sum of sines of it, and noise. For
// task=regression; needs no files.
#include <cmath>
#include <numbers>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/data/registry.h"

namespace invar {

namespace {

struct SinesOptions {
    std::int64_t size = 10000;
    std::int64_t inputs = 8;
    std::int64_t outputs = 1;
    double noise = 0.05;
};

// Philox streams of their own, apart from those of dropout and initialisers, which may use the same seed.
constexpr std::uint64_t kWaveStream = 0x73696e6577617665, kSampleStream = 0x73696e6573616d70;

class Sines final : public Dataset {
  public:
    Sines(const SinesOptions& options, Split split, std::uint64_t seed)
        : options_(options),
          size_(split == Split::train ? options.size : std::max<std::int64_t>(1, options.size / 5)),
          seed_(seed),
          stream_(kSampleStream + std::uint64_t(split)) {}

    std::string name() const override { return "sines"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{options_.inputs}, options_.outputs}; }

    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        Batch batch({{"x", Tensor::empty({n, options_.inputs})}, {"y", Tensor::empty({n, options_.outputs})}}, n);
        float* x = batch["x"].data<float>();
        float* y = batch["y"].data<float>();
        for (const std::int64_t index : indices) {
            check(index >= 0 && index < size_, "sines: sample {} does not exist; it has {}", index, size_);
            for (std::int64_t i = 0; i < options_.inputs; ++i) x[i] = draw(index, i);
            for (std::int64_t j = 0; j < options_.outputs; ++j) y[j] = answer(x, index, j);
            x += options_.inputs, y += options_.outputs;
        }
        return batch;
    }

  private:
    // In [-1, 1]; the same for a sample and a place, whatever was drawn before.
    float draw(std::int64_t index, std::int64_t place) const {
        return 2.0f * to_unit(philox(seed_, std::uint64_t(index), stream_ + (std::uint64_t(place) << 8)).v[0]) - 1.0f;
    }
    float answer(const float* x, std::int64_t index, std::int64_t output) const {
        double sum = 0.0;
        for (std::int64_t i = 0; i < options_.inputs; ++i) {
            const Random4 wave = philox(seed_, std::uint64_t(output * options_.inputs + i), kWaveStream);
            sum += std::sin(std::numbers::pi * (double(x[i]) * (1.0 + wave.v[0] % 2) + double(to_unit(wave.v[1]))));
        }
        return float(sum / std::sqrt(double(options_.inputs)) +
                     options_.noise * double(draw(index, options_.inputs + output)));
    }

    SinesOptions options_;
    std::int64_t size_;
    std::uint64_t seed_, stream_;
};

using S = SinesOptions;
const RegisterData<S> kSines{
    "sines",
    "Sums of sines to predict, made on the fly from the seed: for task=regression.",
    [](const S& options, Split split, std::uint64_t seed) { return std::make_shared<Sines>(options, split, seed); },
    {key("size", &S::size, within(1, 1e9), "Training samples; a fifth of it to validate on."),
     key("inputs", &S::inputs, within(1, 4096), "Numbers in x."),
     key("outputs", &S::outputs, within(1, 4096), "Numbers in y."),
     key("noise", &S::noise, at_least(0), "Half the width of the noise on y.")}};

}  // namespace

}  // namespace invar
