// data=shapes: small images of a disc, a square or a cross somewhere in noise, made from the seed.
#include "invar/invar.h"
using namespace invar;
namespace {

struct Options {
    std::int64_t size = 3000;
    double brightness = 1.0;
};
constexpr int kSide = 12;

struct Shapes : Dataset {
    Shapes(const Options& options, Split split, std::uint64_t seed)
        : options(options), count(split == Split::train ? options.size : options.size / 5),
          stream(2 * seed + std::uint64_t(split)) {}
    std::string name() const override { return "shapes"; }
    std::int64_t size() const override { return count; }
    DataInfo info() const override { return {{kSide, kSide, 1}, 3}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        Batch batch({{"x", Tensor::empty({n, kSide, kSide, 1})}, {"y", Tensor::empty({n}, Dtype::i64)}}, n);
        float* x = batch["x"].data<float>();
        std::int64_t* y = batch["y"].data<std::int64_t>();
        for (const std::int64_t index : indices) {
            const Random4 place = philox(stream, std::uint64_t(index), 0);
            const int label = int(*y++ = place.v[0] % 3), top = 3 + int(place.v[1] % 6), left = 3 + int(place.v[2] % 6);
            for (int i = 0; i < kSide * kSide; ++i) {
                const int v = std::abs(i / kSide - top), u = std::abs(i % kSide - left);
                const bool in[] = {u * u + v * v <= 4, u <= 2 && v <= 2, (u == 0 || v == 0) && u + v <= 3};
                const float noise = to_unit(philox(stream, std::uint64_t(index), std::uint64_t(i) + 1).v[0]);
                *x++ = float(options.brightness) * (0.5f * noise + (in[label] ? 0.7f : 0.0f) - 0.4f);
            }
        }
        return batch;
    }
    Options options;
    std::int64_t count;
    std::uint64_t stream;
};

const RegisterData<Options> kShapes{
    "shapes", "Discs, squares and crosses in noise.",
    [](const Options& o, Split split, std::uint64_t seed) { return std::make_shared<Shapes>(o, split, seed); },
    {key("size", &Options::size, within(10, 1e6), "Images to train on; a fifth of it to validate on."),
     key("brightness", &Options::brightness, above(0), "A factor on every pixel.")}};

}  // namespace
