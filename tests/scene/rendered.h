// Renderers for the tests of invar/scene, and what is asked of the scenes of any of them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "invar/detect/raster.h"
#include "invar/scene/scene.h"

namespace invar::scene::testing {

struct NamedMaker {
    std::string name;
    std::unique_ptr<SceneRenderer> (*make)(const SceneOptions& options);
};

// A renderer that this build does not have is left out.
inline std::vector<NamedMaker> makers() {
    std::vector<NamedMaker> all = {
        {"Freetype", [](const SceneOptions& options) { return make_freetype_renderer(options, FontSet::train()); }}};
    if (has_pango()) all.push_back({"Pango", [](const SceneOptions& options) { return make_pango_renderer(options); }});
    return all;
}

inline std::string name_of(const ::testing::TestParamInfo<NamedMaker>& info) {
    return info.param.name;
}

inline void PrintTo(const NamedMaker& maker, std::ostream* out) {
    *out << maker.name;
}

// 1 inside any of the polygons, pixel by pixel.
inline std::vector<bool> covered_by(const std::vector<detect::TextRegion>& texts, const Image& image) {
    std::vector<bool> covered(std::size_t(image.height * image.width));
    for (const detect::TextRegion& text : texts)
        for (const detect::Span& span : detect::spans_of(text.polygon, image.height, image.width))
            for (std::int64_t x = span.first; x < span.last; ++x)
                covered[std::size_t(span.row * image.width + x)] = true;
    return covered;
}

}  // namespace invar::scene::testing
