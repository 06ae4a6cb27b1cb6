#include "invar/data/text_images.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/image/decode.h"

namespace invar {

TextImages::TextImages(std::string name, const TextImagesOptions& o, Split split, std::uint64_t seed, TextLimits limits)
    : name_(std::move(name)),
      options_(o),
      augment_{{o.scale[0], o.scale[1]}, o.degrees, o.flip, o.brightness, o.contrast, o.saturation},
      seed_(seed),
      augmented_(split == Split::train && o.augment),
      limits_(limits),
      scale_{{o.mean.begin(), o.mean.end()}, {o.std.begin(), o.std.end()}},
      table_(scale_) {
    check<UsageError>(o.size >= 32 && o.size % 32 == 0, "data.size={}, expected a multiple of 32", o.size);
    check_options(augment_);
}

DataInfo text_images_info(const TextImagesOptions& options) {
    return {.input = {options.size, options.size, 3}, .outputs = 1, .more_than_labels = true};
}

std::optional<SeenImage> TextImages::see(std::span<const std::uint8_t> file, const std::string& name) const {
    TextImage whole{decode_image(file, name)};
    SeenImage seen = seen_image(fitted_view(whole, options_.size).image, table_);
    seen.size = whole.image.size();
    seen.box = fitted_box(seen.size, options_.size);
    seen.whole = std::move(whole.image);
    return seen;
}

TextImage TextImages::view(std::int64_t index) const {
    return fitted_view(load(index), options_.size);
}

TextImage TextImages::view(std::int64_t index, std::int64_t epoch) const {
    const RngState key = augment_key(seed_, std::uint64_t(epoch), std::uint64_t(index));
    return augmented_view(load(index), options_.size, augment_, key);
}

Batch TextImages::read(std::span<const std::int64_t> indices, const ReadOptions& options, bool augmented) const {
    const PurposeScope purpose(Purpose::data);
    const std::int64_t side = options_.size, per_image = side * side * 3;
    Batch batch = make_text_batch(std::int64_t(indices.size()), {side, side, 3}, limits_);
    if (options.bytes) batch.set("x", Tensor::empty(batch["x"].shape(), Dtype::u8));
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t index = indices[i], sample = std::int64_t(i);
        check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name_, index, size());
        const TextImage seen = augmented ? view(index, options.epoch) : view(index);
        if (options.bytes)
            std::ranges::copy(seen.image.pixels, batch["x"].data<std::uint8_t>() + sample * per_image);
        else
            table_.numbers(seen.image.pixels, batch["x"].data<float>() + sample * per_image);
        try {
            put_texts(batch, sample, seen.texts);
        } catch (const Error& error) {
            fail("{}: {}", sample_name(index), error.what());
        }
        detect::draw_labels(seen.texts, label_planes(batch, sample), options_.labels());
    }
    return batch;
}

}  // namespace invar
