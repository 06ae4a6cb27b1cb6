#include "invar/data/dataset.h"

#include "invar/data/pixels.h"
#include "invar/image/colour.h"
#include "invar/image/decode.h"
#include "invar/image/transform.h"

namespace invar {

std::string_view name_of(Split split) {
    return split == Split::train ? "train" : "test";
}

std::optional<SeenImage> Dataset::see(std::span<const std::uint8_t> file, const std::string& name) const {
    const std::optional<PixelScale> scale = pixels();
    const Shape shape = info().input;
    if (!scale || shape.rank() != 3 || (shape[2] != 1 && shape[2] != 3)) return {};
    Image whole = decode_image(file, name);
    const Image view = resize(whole, {shape[0], shape[1]});
    SeenImage seen = seen_image(shape[2] == 1 ? to_grey(view) : view, PixelTable(*scale));
    seen.size = whole.size();
    seen.box = {0, 0, double(whole.height), double(whole.width)};
    seen.whole = std::move(whole);
    return seen;
}

}  // namespace invar
