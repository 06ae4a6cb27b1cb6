#include "invar/scene/icdar_writer.h"

#include <cmath>
#include <string>

#include "invar/core/error.h"
#include "invar/image/encode.h"
#include "invar/io/file.h"

namespace invar::scene {

namespace {

std::string ground_truth(const Scene& scene, detect::TruthFormat format) {
    std::string text;
    for (const detect::TextRegion& region : scene.texts) {
        detect::Polygon polygon = region.polygon;
        if (format == detect::TruthFormat::quadrilaterals && polygon.size() != 4)
            polygon = detect::min_area_rectangle(polygon).polygon();
        for (const detect::Point& p : polygon) text += fmt::format("{},{},", std::llround(p.x), std::llround(p.y));
        text += region.transcription + "\r\n";
    }
    return text;
}

}  // namespace

void write_icdar(const std::filesystem::path& folder, const SceneRenderer& renderer, std::int64_t count,
                 std::uint64_t seed, const IcdarFiles& files) {
    check<UsageError>(count >= 0, "{} scenes cannot be written", count);
    make_folders(folder);
    for (std::int64_t i = 0; i < count; ++i) {
        const Scene scene = renderer.render(seed, i);
        const std::string name = fmt::format("img_{}", i + 1);
        write_file_atomically(folder / (name + (files.jpeg ? ".jpg" : ".png")),
                              files.jpeg ? encode_jpeg(scene.image, files.jpeg_quality) : encode_png(scene.image));
        write_file_atomically(folder / ("gt_" + name + ".txt"), ground_truth(scene, files.format));
    }
}

}  // namespace invar::scene
