#include "invar/image/decode.h"

#include <algorithm>
#include <string_view>

#include "invar/core/error.h"
#include "invar/image/formats.h"
#include "invar/io/file.h"

namespace invar {

std::optional<ImageFormat> image_format(EncodedBytes bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.starts_with("\xff\xd8\xff")) return ImageFormat::jpeg;
    if (text.starts_with("\x89PNG\r\n\x1a\n")) return ImageFormat::png;
    if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP") return ImageFormat::webp;
    return {};
}

void check_image_size(ImageSize size, const std::string& name, const DecodeLimits& limits, std::size_t bytes,
                      double most_ratio) {
    const auto [height, width] = size;
    check<IoError>(height > 0 && width > 0, "{}: an image of {} x {} pixels has none", name, height, width);
    check<IoError>(height <= limits.most_pixels / width,
                   "{}: {} x {} pixels (height x width), more than the {} that are accepted; make it smaller", name,
                   height, width, limits.most_pixels);
    check<IoError>(
        most_ratio == 0 || double(height) * double(width) <= double(bytes) * most_ratio,
        "{}: {} bytes cannot hold the {} x {} pixels (height x width) of its header; it is truncated or made "
        "up, fetch it again",
        name, bytes, height, width);
}

namespace {

std::unique_ptr<EncodedImage> open(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    check<IoError>(!bytes.empty(), "{}: an empty file, expected an image; fetch it again", name);
    const std::optional<ImageFormat> format = image_format(bytes);
    check<IoError>(format.has_value(), "{}: not an image this program reads; make it JPEG, PNG or WebP", name);
    switch (*format) {
        case ImageFormat::jpeg:
            return open_jpeg(bytes, name, limits);
        case ImageFormat::png:
            return open_png(bytes, name, limits);
        default:
            return open_webp(bytes, name, limits);
    }
}

}  // namespace

ImageSize image_size(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    const std::unique_ptr<EncodedImage> file = open(bytes, name, limits);
    return file->orientation().upright(file->size());
}

Image decode_image(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits) {
    const std::unique_ptr<EncodedImage> file = open(bytes, name, limits);
    return file->orientation().upright(file->decode());
}

Image read_image(const std::filesystem::path& path, const DecodeLimits& limits) {
    const std::string content = read_file(path);
    return decode_image({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, path.string(), limits);
}

DecodedRegion decode_region(EncodedBytes bytes, const std::string& name, const PixelBox& box,
                            std::optional<ImageSize> at_least, const DecodeLimits& limits) {
    const std::unique_ptr<EncodedImage> file = open(bytes, name, limits);
    const Orientation orientation = file->orientation();
    const ImageSize size = orientation.upright(file->size());
    check<UsageError>(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                          box.height <= size.height - box.top && box.width <= size.width - box.left,
                      "{}: no box of {} x {} pixels at row {}, column {} in an image of {} x {}", name, box.height,
                      box.width, box.top, box.left, size.height, size.width);
    int shrink = 1;
    while (at_least && file->shrinks() && shrink < 8 && box.height >= at_least->height * shrink * 2 &&
           box.width >= at_least->width * shrink * 2)
        shrink *= 2;
    DecodedRegion region = file->decode(orientation.to_stored(box, file->size()), shrink);
    region.box = orientation.to_upright(region.box, region.image.size());
    region.image = orientation.upright(std::move(region.image));
    return region;
}

}  // namespace invar
