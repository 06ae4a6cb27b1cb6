#include "invar/scene/grain.h"

#include <algorithm>
#include <cmath>

#include "invar/image/transform.h"

namespace invar::scene {

std::uint64_t draw_key(RandomDraws& draws) {
    return std::uint64_t(draws.uniform() * 0x1p53);
}

void add_value_noise(Field& field, double cell_height, double cell_width, double amplitude, std::uint64_t key) {
    const std::int64_t columns = std::int64_t(double(field.width) / cell_width) + 2;
    struct Place {
        std::int32_t cell;
        float part;
    };
    const auto place_of = [](std::int64_t pixel, double cell) {
        const double at = (double(pixel) + 0.5) / cell, whole = std::floor(at);
        const float t = float(at - whole);
        return Place{std::int32_t(whole), t * t * (3 - 2 * t)};
    };
    std::vector<Place> places(std::size_t(field.width));
    for (std::int64_t x = 0; x < field.width; ++x) places[std::size_t(x)] = place_of(x, cell_width);
    const auto corners = [&](std::int64_t row) {
        std::vector<float> values(static_cast<std::size_t>(columns));
        for (std::int64_t i = 0; i < columns; ++i)
            values[std::size_t(i)] =
                float((double(hash64(key + std::uint64_t(row * columns + i)) >> 40) * 0x1p-23 - 1) * amplitude);
        return values;
    };
    std::int64_t current = -1;
    std::vector<float> upper, lower, line(static_cast<std::size_t>(columns));
    for (std::int64_t y = 0; y < field.height; ++y) {
        const Place vertical = place_of(y, cell_height);
        if (vertical.cell != current) {
            upper = current >= 0 && vertical.cell == current + 1 ? std::move(lower) : corners(vertical.cell);
            lower = corners(vertical.cell + 1);
            current = vertical.cell;
        }
        for (std::size_t i = 0; i < line.size(); ++i) line[i] = upper[i] + (lower[i] - upper[i]) * vertical.part;
        float* to = field.row(y);
        for (std::int64_t x = 0; x < field.width; ++x) {
            const Place& at = places[std::size_t(x)];
            to[x] +=
                line[std::size_t(at.cell)] + (line[std::size_t(at.cell) + 1] - line[std::size_t(at.cell)]) * at.part;
        }
    }
}

Camera draw_camera(RandomDraws& draws, double most_sigma, double most_noise) {
    Camera camera;
    const double soft = draws.uniform(), grainy = draws.uniform();
    camera.sigma = most_sigma * soft * soft;
    camera.noise = most_noise * grainy * grainy;
    camera.light = draws.uniform({0.05, 0.3});
    return camera;
}

void take_picture(Image& image, const Camera& camera, std::uint64_t key) {
    if (camera.light > 0) {
        Field light(image.height, image.width, 1);
        const double side = double(std::max(image.height, image.width));
        add_value_noise(light, side / 1.7, side / 1.7, camera.light, hash64(key));
        for (std::int64_t y = 0; y < image.height; ++y) {
            const float* factor = light.row(y);
            std::uint8_t* row = image.row(y);
            for (std::int64_t x = 0; x < image.width; ++x)
                for (int c = 0; c < 3; ++c)
                    row[3 * x + c] = std::uint8_t(std::min(float(row[3 * x + c]) * factor[x] + 0.5f, 255.0f));
        }
    }
    if (camera.sigma > 0.2) {
        const std::int64_t radius = std::int64_t(std::ceil(camera.sigma * 2));
        image = gaussian_blur(image, camera.sigma, 2 * radius + 1);
    }
    if (camera.noise > 0) {
        // The sum of four bytes is close to a normal number, of deviation 148.
        const int strength = int(camera.noise / 148 * 4096 + 0.5);
        const std::size_t count = image.pixels.size();
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (i % 2 == 0) bits = hash64(key + i);
            const std::uint32_t four = std::uint32_t(bits >> (i % 2 * 32));
            const int sum = int((four & 0xff) + (four >> 8 & 0xff) + (four >> 16 & 0xff) + (four >> 24)) - 510;
            image.pixels[i] = std::uint8_t(std::clamp(image.pixels[i] + ((sum * strength + 2048) >> 12), 0, 255));
        }
    }
}

}  // namespace invar::scene
