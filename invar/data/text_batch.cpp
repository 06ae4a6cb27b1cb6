#include "invar/data/text_batch.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/ops/creation.h"

namespace invar {

Batch make_text_batch(std::int64_t count, const TextImageShape& image, const TextLimits& limits) {
    const Shape map{count, image.height, image.width}, texts{count, limits.texts};
    return Batch({{"x", Tensor::empty({count, image.height, image.width, image.channels})},
                  {"shrink", Tensor::empty(map)},
                  {"shrink_mask", Tensor::empty(map)},
                  {"threshold", Tensor::empty(map)},
                  {"threshold_mask", Tensor::empty(map)},
                  {"polygons", ops::zeros({count, limits.texts, limits.points, 2})},
                  {"points", ops::zeros(texts, Dtype::i64)},
                  {"dont_care", ops::zeros(texts, Dtype::i64)}},
                 count);
}

void put_texts(const Batch& batch, std::int64_t sample, std::span<const detect::TextRegion> texts) {
    const Tensor &polygons = batch["polygons"], &points = batch["points"], &dont_care = batch["dont_care"];
    const std::int64_t most_texts = polygons.size(1), most_points = polygons.size(2);
    check(std::int64_t(texts.size()) <= most_texts, "an image has {} texts, and a batch holds {} of each", texts.size(),
          most_texts);
    float* xy = polygons.data<float>() + sample * most_texts * most_points * 2;
    std::int64_t* counts = points.data<std::int64_t>() + sample * most_texts;
    std::int64_t* ignored = dont_care.data<std::int64_t>() + sample * most_texts;
    std::fill_n(xy, most_texts * most_points * 2, 0.0f);
    std::fill_n(counts, most_texts, 0);
    std::fill_n(ignored, most_texts, 0);
    for (const detect::TextRegion& text : texts) {
        const std::int64_t size = std::int64_t(text.polygon.size());
        check(size <= most_points, "a text has {} points, and a batch holds {} of each", size, most_points);
        *counts++ = size;
        *ignored++ = text.dont_care;
        float* to = xy;
        for (const detect::Point& point : text.polygon) *to++ = float(point.x), *to++ = float(point.y);
        xy += most_points * 2;
    }
}

detect::LabelPlanes label_planes(const Batch& batch, std::int64_t sample) {
    const std::int64_t height = batch["shrink"].size(1), width = batch["shrink"].size(2);
    const auto plane = [&](const char* name) { return batch[name].data<float>() + sample * height * width; };
    return {height, width, plane("shrink"), plane("shrink_mask"), plane("threshold"), plane("threshold_mask")};
}

std::vector<std::vector<detect::TextRegion>> texts_of(const Batch& batch) {
    const Shape& shape = batch["polygons"].shape();
    check(shape.rank() == 4 && shape[3] == 2, "polygons of a batch are [n, texts, points, 2], not {}", shape.str());
    const std::int64_t samples = shape[0], texts = shape[1], most_points = shape[2];
    const auto xy = batch["polygons"].to_vector<float>();
    const auto points = batch["points"].to_vector<std::int64_t>();
    const auto dont_care = batch["dont_care"].to_vector<std::int64_t>();
    check(std::int64_t(points.size()) == samples * texts && points.size() == dont_care.size(),
          "points {} and dont_care {} of a batch do not fit its polygons {}", batch["points"].shape().str(),
          batch["dont_care"].shape().str(), shape.str());
    std::vector<std::vector<detect::TextRegion>> all(static_cast<std::size_t>(samples));
    for (std::int64_t i = 0; i < samples * texts; ++i) {
        const std::int64_t count = points[std::size_t(i)];
        check(count >= 0 && count <= most_points, "a text of a batch has {} points, and there is room for {}", count,
              most_points);
        if (count == 0) continue;
        detect::TextRegion text;
        text.dont_care = dont_care[std::size_t(i)] != 0;
        for (std::int64_t p = 0; p < count; ++p) {
            const float* from = xy.data() + (i * most_points + p) * 2;
            text.polygon.push_back({from[0], from[1]});
        }
        all[std::size_t(i / texts)].push_back(std::move(text));
    }
    return all;
}

}  // namespace invar
