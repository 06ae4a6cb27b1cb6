#include "invar/scene/scene.h"

#include <string_view>

#include "invar/core/error.h"
#include "invar/core/rng.h"

namespace invar::scene {

void check_options(const SceneOptions& options) {
    constexpr std::int64_t kLeastSide = 64, kMostSide = 8192, kMostWords = 1000;
    check<UsageError>(options.height >= kLeastSide && options.width >= kLeastSide && options.height <= kMostSide &&
                          options.width <= kMostSide,
                      "scenes of {} x {} pixels, expected {} to {} for either side", options.height, options.width,
                      kLeastSide, kMostSide);
    check<UsageError>(
        options.min_words >= 0 && options.min_words <= options.max_words && options.max_words <= kMostWords,
        "{} to {} words in a scene, expected 0 to {} with the smaller number first", options.min_words,
        options.max_words, kMostWords);
    check<UsageError>(
        options.min_font_size >= 8 && options.min_font_size <= options.max_font_size && options.max_font_size <= 1000,
        "fonts of {} to {} pixels, expected 8 to 1000 with the smaller number first", options.min_font_size,
        options.max_font_size);
    const auto in_range = [](std::string_view name, double value, double most) {
        check<UsageError>(value >= 0 && value <= most, "{} of scenes is {}, expected 0 to {}", name, value, most);
    };
    in_range("curved", options.curved, 1);
    in_range("perspective", options.perspective, 1);
    in_range("rotation", options.rotation, 180);
    in_range("dont_care", options.dont_care, 1);
    in_range("sign", options.sign, 1);
    in_range("outline", options.outline, 1);
    in_range("shadow", options.shadow, 1);
    in_range("min_contrast", options.min_contrast, 120);
    in_range("blur", options.blur, 10);
    in_range("noise", options.noise, 100);
}

RandomDraws scene_draws(std::uint64_t seed, std::int64_t index, std::uint64_t stream) {
    const Random4 random = philox(seed, std::uint64_t(index), stream);
    return RandomDraws({std::uint64_t(random.v[0]) << 32 | random.v[1], 0});
}

}  // namespace invar::scene
