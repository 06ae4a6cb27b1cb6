// What a batch of images with texts holds, as the task text_detection reads it: the images, DBNet's four label maps,
// and the texts themselves, which evaluation compares detections with.
//
//   name            dtype  shape                        what
//   x               f32    [n, height, width, channels] images, normalised; height and width multiples of 32
//   shrink          f32    [n, height, width]           1 in the shrunk texts, 0 elsewhere
//   shrink_mask     f32    [n, height, width]           0 where a text is left out, 1 elsewhere
//   threshold       f32    [n, height, width]           0.3 to 0.7, high along the texts' borders
//   threshold_mask  f32    [n, height, width]           1 in the grown texts, 0 elsewhere
//   polygons        f32    [n, texts, points, 2]        x, y in pixels of x; 0 behind a text's last point
//   points          i64    [n, texts]                   how many points a text has; 0 behind the last text
//   dont_care       i64    [n, texts]                   1 for a text that counts neither as found nor as missed
//
// `texts` and `points` are the same in all batches of a data set: a step is recorded for a shape. Transcriptions stay
// behind.
#pragma once

#include <span>
#include <vector>

#include "invar/data/batch.h"
#include "invar/detect/label_maps.h"
#include "invar/detect/text_region.h"

namespace invar {

struct TextLimits {
    std::int64_t texts = 128;  // in an image
    std::int64_t points = 32;  // of a polygon
};

struct TextImageShape {
    std::int64_t height = 0, width = 0, channels = 3;
};

// All tensors of `count` samples, without a text; x and the maps are not written yet.
Batch make_text_batch(std::int64_t count, const TextImageShape& image, const TextLimits& limits = {});
// Writes the texts of a sample. An Error where they are more than a batch holds, or one has more points.
void put_texts(const Batch& batch, std::int64_t sample, std::span<const detect::TextRegion> texts);
// The maps of a sample, for detect::draw_labels.
detect::LabelPlanes label_planes(const Batch& batch, std::int64_t sample);
// The texts of each sample, from any device; their transcriptions are empty.
std::vector<std::vector<detect::TextRegion>> texts_of(const Batch& batch);

}  // namespace invar
