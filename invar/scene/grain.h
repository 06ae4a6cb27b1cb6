// What a camera adds to whatever stands before it: uneven light, blur, noise. And noise in space, of which walls and
// light are made. Numbers are hashes of a key and a place, a few to the nanosecond.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/image/augment.h"
#include "invar/image/image.h"

namespace invar::scene {

inline std::uint64_t hash64(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// A key for such hashes.
std::uint64_t draw_key(RandomDraws& draws);

// Values of the pixels of an image, row by row.
struct Field {
    std::int64_t height = 0, width = 0;
    std::vector<float> values;
    Field(std::int64_t height_, std::int64_t width_, float value = 0)
        : height(height_), width(width_), values(std::size_t(height_ * width_), value) {}
    float* row(std::int64_t y) { return values.data() + y * width; }
    const float* row(std::int64_t y) const { return values.data() + y * width; }
};

// Adds value noise: numbers from -amplitude to amplitude at the corners of cells, and smooth between them.
void add_value_noise(Field& field, double cell_height, double cell_width, double amplitude, std::uint64_t key);

struct Camera {
    double sigma = 0;  // of the blur
    double noise = 0;  // deviation
    double light = 0;  // how uneven: a part by which places are darker or brighter
};
// Sigma and noise at most these, most often less.
Camera draw_camera(RandomDraws& draws, double most_sigma, double most_noise);
void take_picture(Image& image, const Camera& camera, std::uint64_t key);

}  // namespace invar::scene
