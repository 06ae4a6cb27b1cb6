// Bright rectangles in noise as texts, from the seed: small data for text detection. Of three, one counts for nothing.
#pragma once

#include "invar/core/rng.h"
#include "invar/data/dataset.h"
#include "invar/data/text_batch.h"

namespace invar {

struct RectangleOptions {
    std::int64_t size = 16;
};

class Rectangles : public Dataset {
  public:
    static constexpr std::int64_t kSide = 64;
    Rectangles(const RectangleOptions& options, Split split, std::uint64_t seed)
        : size_(options.size), stream_(2 * seed + std::uint64_t(split)) {}

    std::string name() const override { return "rectangles"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{kSide, kSide, 3}, 1}; }

    // The left half has two texts, the right half one.
    std::vector<detect::TextRegion> texts(std::int64_t index) const {
        std::vector<detect::TextRegion> texts;
        for (std::uint64_t i = 0; i < 3; ++i) {
            const Random4 drawn = philox(stream_, std::uint64_t(index), i);
            const double left = (i == 2 ? 34 : 2) + drawn.v[0] % 4, top = (i == 1 ? 34 : 4) + drawn.v[1] % 8;
            const double right = left + 18 + drawn.v[2] % 8, bottom = top + 14 + drawn.v[3] % 6;
            texts.push_back({{{left, top}, {right, top}, {right, bottom}, {left, bottom}}, {}, i == 2});
        }
        return texts;
    }

    Batch read(std::span<const std::int64_t> indices) const override {
        const Batch batch = make_text_batch(std::int64_t(indices.size()), {kSide, kSide, 3}, {.texts = 4, .points = 4});
        float* x = batch["x"].data<float>();
        for (std::size_t n = 0; n < indices.size(); ++n) {
            const std::vector<detect::TextRegion> all = texts(indices[n]);
            put_texts(batch, std::int64_t(n), all);
            detect::draw_labels(all, label_planes(batch, std::int64_t(n)));
            for (std::int64_t i = 0; i < kSide * kSide * 3; ++i) {
                const double row = double(i / (kSide * 3)), column = double(i / 3 % kSide);
                float value = to_unit(philox(stream_, std::uint64_t(indices[n]), 1000 + std::uint64_t(i)).v[0]) - 0.5f;
                for (const detect::TextRegion& text : all) {
                    const detect::Bounds box = detect::bounds_of(text.polygon);
                    if (column >= box.left && column < box.right && row >= box.top && row < box.bottom) value += 1.0f;
                }
                *x++ = value;
            }
        }
        return batch;
    }

  private:
    std::int64_t size_;
    std::uint64_t stream_;
};

}  // namespace invar
