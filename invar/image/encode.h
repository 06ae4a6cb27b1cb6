// Images as files: PNG, which keeps every pixel, and JPEG.
#pragma once

#include <filesystem>
#include <string>

#include "invar/image/image.h"

namespace invar {

std::string encode_png(const Image& image);
// A reader sees the old file or the new one, never a part.
void write_png(const std::filesystem::path& path, const Image& image);

// With colours at half the resolution (4:2:0), as most programs write them.
std::string encode_jpeg(const Image& image, int quality = 90);

}  // namespace invar
