// libFuzzer target: any bytes as a file of ground truth, and as coordinates without any file: label maps, boxes and a
// score, or an invar::Error. Whatever has an area overlaps itself whole.
#include "invar/detect/icdar.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "invar/core/error.h"
#include "invar/detect/ceiling.h"

namespace {

using namespace invar::detect;

void use(const std::vector<TextRegion>& texts) {
    constexpr std::int64_t kHeight = 32, kWidth = 40;
    LabelMaps maps(kHeight, kWidth);
    draw_labels(texts, maps.planes());
    for (std::size_t i = 0; i < maps.threshold.size(); ++i) {
        if (!(maps.threshold[i] >= 0.3f && maps.threshold[i] <= 0.7f)) std::abort();
        if (maps.probability[i] == 1 && maps.threshold_mask[i] != 1) std::abort();
    }
    for (const TextRegion& text : texts) {
        const double same = iou(text.polygon, text.polygon);
        if (!(same >= 0 && same <= 1)) std::abort();
        if (is_simple(text.polygon) && covered_area(text.polygon) > 1 && perimeter(text.polygon) < 1e4 && same < 0.9)
            std::abort();
        offset(text.polygon, 3);
        offset(text.polygon, -shrink_distance(text.polygon, 0.4));
    }
    const ImageCeiling image = image_ceiling(texts, kHeight, kWidth);
    if (image.ceiling.counts.matched > image.ceiling.counts.truths) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (const TruthFormat format : {TruthFormat::quadrilaterals, TruthFormat::polygons}) {
        try {
            use(parse_ground_truth(bytes, "fuzz", format));
        } catch (const invar::Error&) {
        }
    }
    Polygon raw, small;
    for (std::size_t at = 0; at + sizeof(Point) <= size && raw.size() < 64; at += sizeof(Point)) {
        std::memcpy(&raw.emplace_back(), data + at, sizeof(Point));
    }
    for (std::size_t at = 0; at + 2 <= size && small.size() < 64; at += 2) {
        small.push_back({data[at] / 4.0, data[at + 1] / 4.0});
    }
    use({{raw}, {small}});
    return 0;
}
