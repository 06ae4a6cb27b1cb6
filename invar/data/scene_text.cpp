// data=scene_text: rendered signs and walls with texts to find, made on the fly from the seed; needs no files but
// fonts. What is validated on is set in fonts that are never trained on.
#include <algorithm>
#include <mutex>

#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/data/text_images.h"
#include "invar/scene/scene.h"

namespace invar {

namespace {

struct SceneTextOptions : TextImagesOptions {
    std::int64_t scenes = 10000, val_scenes = 500;
    std::int64_t min_words = scene::SceneOptions{}.min_words, max_words = scene::SceneOptions{}.max_words;
    double min_font_size = scene::SceneOptions{}.min_font_size, max_font_size = scene::SceneOptions{}.max_font_size;
    double curved = scene::SceneOptions{}.curved, rotation = scene::SceneOptions{}.rotation;
    std::string val_renderer = "freetype";
};

scene::SceneOptions scene_options(const SceneTextOptions& o) {
    const auto in_order = [](const char* what, auto least, auto most) {
        check<UsageError>(least <= most, "data.min_{0}={1} is above data.max_{0}={2}", what, least, most);
    };
    in_order("words", o.min_words, o.max_words);
    in_order("font_size", o.min_font_size, o.max_font_size);
    scene::SceneOptions options;
    options.height = options.width = o.size;
    options.min_words = o.min_words, options.max_words = o.max_words;
    options.min_font_size = o.min_font_size, options.max_font_size = o.max_font_size;
    options.curved = o.curved, options.rotation = o.rotation;
    return options;
}

std::unique_ptr<scene::SceneRenderer> renderer_of(const SceneTextOptions& o, Split split) {
    const scene::SceneOptions options = scene_options(o);
    if (split == Split::train) return make_freetype_renderer(options, scene::FontSet::train());
    if (o.val_renderer == "freetype") return make_freetype_renderer(options, scene::FontSet::test());
    check<UsageError>(scene::has_pango(), "data.val_renderer=pango: this build has no Pango; use freetype");
    return make_pango_renderer(options);
}

class SceneTexts final : public TextImages {
  public:
    SceneTexts(const SceneTextOptions& o, Split split, std::uint64_t seed)
        : TextImages("scene_text", o, split, seed, {std::max<std::int64_t>(128, 4 * o.max_words), 32}),
          scenes_(o),
          split_(split),
          seed_(2 * seed + (split == Split::train ? 0 : 1)) {
        scene_options(o);  // what is wrong with them need not wait
        if (split == Split::test) return;
        renderer();
        renderer_of(o, Split::test);  // a run should not begin where its validation would want fonts
    }

    std::int64_t size() const override { return split_ == Split::train ? scenes_.scenes : scenes_.val_scenes; }
    TextImage load(std::int64_t index) const override {
        scene::Scene made = renderer().render(seed_, index);
        return {std::move(made.image), std::move(made.texts)};
    }
    std::string sample_name(std::int64_t index) const override { return fmt::format("scene {}", index); }

  private:
    // Of scenes to validate on made when the first is read: who only shows a model other images needs no fonts.
    const scene::SceneRenderer& renderer() const {
        std::call_once(once_, [this] { renderer_ = renderer_of(scenes_, split_); });
        return *renderer_;
    }

    SceneTextOptions scenes_;
    Split split_;
    std::uint64_t seed_;
    mutable std::once_flag once_;
    mutable std::unique_ptr<scene::SceneRenderer> renderer_;
};

std::vector<Key> keys() {
    using O = SceneTextOptions;
    std::vector<Key> all = {
        key("scenes", &O::scenes, within(1, 1e9), "Images to train on."),
        key("val_scenes", &O::val_scenes, within(1, 1e9), "Images to validate on, in fonts that are never trained on."),
        key("min_words", &O::min_words, within(1, 1000), "In an image, at least."),
        key("max_words", &O::max_words, within(1, 1000), "In an image, at most; fewer where they find no room."),
        key("min_font_size", &O::min_font_size, within(8, 1000), "Of the em in pixels, at least."),
        key("max_font_size", &O::max_font_size, within(8, 1000), "Of the em in pixels, at most."),
        key("curved", &O::curved, within(0, 1), "Share of texts on an arc."),
        key("rotation", &O::rotation, within(0, 180), "Degrees that texts are turned by in a scene, at most."),
        key("val_renderer", &O::val_renderer, one_of({"freetype", "pango"}),
            "Who draws what is validated on; pango is another renderer than that of the images trained on.")};
    for (Key& shared : text_images_keys<O>()) all.push_back(std::move(shared));
    return all;
}

const RegisterData<SceneTextOptions> kSceneText{
    "scene_text", "Rendered signs and walls with texts to find, made on the fly from the seed.",
    [](const SceneTextOptions& options, Split split, std::uint64_t seed) {
        return std::make_shared<SceneTexts>(options, split, seed);
    },
    keys(), text_images_info};

}  // namespace

}  // namespace invar
