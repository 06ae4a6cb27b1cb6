#include "invar/scene/pango/cairo.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar::scene {

namespace {

const std::uint8_t* row_of(cairo_surface_t* surface, std::int64_t y) {
    return cairo_image_surface_get_data(surface) + y * cairo_image_surface_get_stride(surface);
}

std::uint32_t pixel_of(const std::uint8_t* row, std::int64_t x) {
    return reinterpret_cast<const std::uint32_t*>(row)[x];
}

}  // namespace

Canvas::Canvas(cairo_format_t format, std::int64_t height, std::int64_t width)
    : height_(height),
      width_(width),
      surface_(cairo_image_surface_create(format, int(width), int(height))),
      context_(cairo_create(surface_.get())) {
    const cairo_status_t status = cairo_status(context_.get());
    check(status == CAIRO_STATUS_SUCCESS, "Cairo makes no surface of {} x {} pixels: {}", height, width,
          cairo_status_to_string(status));
}

Image Canvas::rgb() const {
    cairo_surface_flush(surface_.get());
    Image image(height_, width_);
    for (std::int64_t y = 0; y < height_; ++y) {
        const std::uint8_t* from = row_of(surface_.get(), y);
        std::uint8_t* to = image.row(y);
        for (std::int64_t x = 0; x < width_; ++x, to += 3) {
            const std::uint32_t pixel = pixel_of(from, x);
            to[0] = std::uint8_t(pixel >> 16), to[1] = std::uint8_t(pixel >> 8), to[2] = std::uint8_t(pixel);
        }
    }
    return image;
}

Image Canvas::alpha() const {
    cairo_surface_flush(surface_.get());
    Image image(height_, width_, 1);
    for (std::int64_t y = 0; y < height_; ++y) std::copy_n(row_of(surface_.get(), y), width_, image.row(y));
    return image;
}

double Canvas::brightness(const PixelBox& box) const {
    cairo_surface_flush(surface_.get());
    const std::int64_t bottom = std::min(box.top + box.height, height_), right = std::min(box.left + box.width, width_);
    double sum = 0, count = 0;
    for (std::int64_t y = std::max<std::int64_t>(box.top, 0); y < bottom; y += 3)
        for (std::int64_t x = std::max<std::int64_t>(box.left, 0); x < right; x += 3, ++count) {
            const std::uint32_t p = pixel_of(row_of(surface_.get(), y), x);
            sum += 0.299 * (p >> 16 & 0xff) + 0.587 * (p >> 8 & 0xff) + 0.114 * (p & 0xff);
        }
    return count > 0 ? sum / count : 0;
}

}  // namespace invar::scene
