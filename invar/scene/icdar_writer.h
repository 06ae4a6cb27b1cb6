// Rendered scenes as files, the way ICDAR 2015 publishes its own: img_1.png and gt_img_1.txt, img_2.png and so on.
// detect/icdar.h reads them back, and so does any other program that knows the format.
#pragma once

#include <cstdint>
#include <filesystem>

#include "invar/detect/icdar.h"
#include "invar/scene/scene.h"

namespace invar::scene {

struct IcdarFiles {
    // Four corners for each text, as published; or all points of those on an arc, as Total-Text has them.
    detect::TruthFormat format = detect::TruthFormat::quadrilaterals;
    bool jpeg = false;  // img_1.jpg, as published; PNG keeps every pixel
    int jpeg_quality = 92;
};

// Scenes 0 to count - 1 of the seed. The folder is made where it is missing. Coordinates are rounded to whole pixels.
void write_icdar(const std::filesystem::path& folder, const SceneRenderer& renderer, std::int64_t count,
                 std::uint64_t seed, const IcdarFiles& files = {});

}  // namespace invar::scene
