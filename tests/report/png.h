// Just enough of PNG to count colours in a browser's screenshot: 8 bits a channel, RGB or RGBA, not interlaced.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "invar/io/file.h"

namespace invar {

struct Picture {
    int width = 0, height = 0;
    std::vector<std::uint32_t> pixels;  // 0xRRGGBB
    std::int64_t count(std::uint32_t colour) const { return std::count(pixels.begin(), pixels.end(), colour); }
    // The most pixels of a colour in one row: a level curve.
    std::int64_t widest(std::uint32_t colour) const {
        std::int64_t most = 0;
        for (auto row = pixels.begin(); row != pixels.end(); row += width)
            most = std::max<std::int64_t>(most, std::count(row, row + width, colour));
        return most;
    }
    // Stretches of at least 60 rows, with gaps of no more than 10, that hold the colour between two columns: curves.
    int tall_stretches(std::uint32_t colour, int from, int to) const {
        int found = 0, begin = -1, last = -1;
        for (int y = 0; y <= height + 10; ++y) {
            const std::uint32_t* row = pixels.data() + std::size_t(std::min(y, height - 1)) * std::size_t(width);
            if (y < height && std::find(row + from, row + to, colour) != row + to) {
                if (begin < 0) begin = y;
                last = y;
            } else if (begin >= 0 && y - last > 10) {
                found += last - begin >= 60;
                begin = -1;
            }
        }
        return found;
    }
};

inline Picture read_png(const std::string& path) {
    const std::string file = read_file(path);
    const auto word = [&](std::size_t at) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(file.at(at + i));
        return value;
    };
    Picture picture;
    std::string packed;
    int channels = 0;
    for (std::size_t at = 8; at + 12 <= file.size(); at += 12 + word(at)) {
        const std::string kind = file.substr(at + 4, 4);
        if (kind == "IHDR") {
            picture.width = int(word(at + 8)), picture.height = int(word(at + 12));
            channels = file.at(at + 17) == 6 ? 4 : 3;
        }
        if (kind == "IDAT") packed += file.substr(at + 8, word(at));
    }
    const std::size_t row = std::size_t(picture.width) * std::size_t(channels);
    std::vector<unsigned char> bytes((row + 1) * std::size_t(picture.height));
    uLongf size = bytes.size();
    EXPECT_EQ(uncompress(bytes.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
    std::vector<unsigned char> above(row, 0);
    for (int y = 0; y < picture.height; ++y) {
        unsigned char* line = bytes.data() + std::size_t(y) * (row + 1);
        const int filter = *line++;
        for (std::size_t i = 0; i < row; ++i) {
            const int a = i >= std::size_t(channels) ? line[i - std::size_t(channels)] : 0, b = above[i];
            const int c = i >= std::size_t(channels) ? above[i - std::size_t(channels)] : 0;
            const int p = a + b - c, pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
            const int guess[] = {0, a, b, (a + b) / 2, pa <= pb && pa <= pc ? a : pb <= pc ? b : c};
            line[i] = static_cast<unsigned char>(line[i] + guess[filter]);
        }
        above.assign(line, line + row);
        for (std::size_t i = 0; i < row; i += std::size_t(channels))
            picture.pixels.push_back(std::uint32_t(line[i]) << 16 | std::uint32_t(line[i + 1]) << 8 | line[i + 2]);
    }
    return picture;
}

}  // namespace invar
