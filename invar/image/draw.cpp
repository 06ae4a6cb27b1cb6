#include "invar/image/draw.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/image/font.h"

namespace invar {

namespace {

// The part of a box that lies in the image.
PixelBox visible(const Image& image, const PixelBox& box) {
    const std::int64_t top = std::max<std::int64_t>(box.top, 0), left = std::max<std::int64_t>(box.left, 0);
    const std::int64_t bottom = std::min(box.top + box.height, image.height);
    const std::int64_t right = std::min(box.left + box.width, image.width);
    return {top, left, std::max<std::int64_t>(bottom - top, 0), std::max<std::int64_t>(right - left, 0)};
}

void put(Image& image, std::int64_t y, std::int64_t x, Rgb colour) {
    std::uint8_t* pixel = image.at(y, x);
    if (image.channels == 1) {
        pixel[0] = std::uint8_t((colour.r * 299 + colour.g * 587 + colour.b * 114 + 500) / 1000);
        return;
    }
    pixel[0] = colour.r, pixel[1] = colour.g, pixel[2] = colour.b;
}

// Towards the colour by a part.
void blend(Image& image, std::int64_t y, std::int64_t x, Rgb colour, double part) {
    const std::uint8_t before[3] = {image.at(y, x)[0], image.at(y, x)[image.channels / 2],
                                    image.at(y, x)[image.channels - 1]};
    const auto mix = [&](std::uint8_t from, std::uint8_t to) {
        return std::uint8_t(double(from) + (double(to) - double(from)) * part + 0.5);
    };
    put(image, y, x, {mix(before[0], colour.r), mix(before[1], colour.g), mix(before[2], colour.b)});
}

std::int64_t clamped(double value, std::int64_t most) {
    return std::int64_t(std::clamp(value, 0.0, double(most)));
}

}  // namespace

void draw_line(Image& image, ImagePoint from, ImagePoint to, Rgb colour, double thickness) {
    check<UsageError>(thickness > 0, "a line {} pixels thick, expected more than 0", thickness);
    check<UsageError>(std::isfinite(from.x) && std::isfinite(from.y) && std::isfinite(to.x) && std::isfinite(to.y),
                      "a line from ({}, {}) to ({}, {}) has no place", from.x, from.y, to.x, to.y);
    const double reach = thickness / 2 + 0.5, dx = to.x - from.x, dy = to.y - from.y, square = dx * dx + dy * dy;
    const std::int64_t top = clamped(std::floor(std::min(from.y, to.y) - reach), image.height);
    const std::int64_t bottom = clamped(std::ceil(std::max(from.y, to.y) + reach), image.height);
    const std::int64_t left = clamped(std::floor(std::min(from.x, to.x) - reach), image.width);
    const std::int64_t right = clamped(std::ceil(std::max(from.x, to.x) + reach), image.width);
    for (std::int64_t y = top; y < bottom; ++y) {
        for (std::int64_t x = left; x < right; ++x) {
            const double px = double(x) + 0.5 - from.x, py = double(y) + 0.5 - from.y;
            const double along = square > 0 ? std::clamp((px * dx + py * dy) / square, 0.0, 1.0) : 0.0;
            const double cover = reach - std::hypot(px - along * dx, py - along * dy);
            if (cover > 0) blend(image, y, x, colour, std::min(cover, 1.0));
        }
    }
}

void draw_polygon(Image& image, std::span<const ImagePoint> corners, Rgb colour, double thickness) {
    for (std::size_t i = 0; i < corners.size(); ++i)
        draw_line(image, corners[i], corners[(i + 1) % corners.size()], colour, thickness);
}

void fill_rectangle(Image& image, const PixelBox& box, Rgb colour) {
    const PixelBox seen = visible(image, box);
    for (std::int64_t y = seen.top; y < seen.top + seen.height; ++y)
        for (std::int64_t x = seen.left; x < seen.left + seen.width; ++x) put(image, y, x, colour);
}

void draw_rectangle(Image& image, const PixelBox& box, Rgb colour, std::int64_t thickness) {
    const std::int64_t rows = std::min(thickness, box.height), columns = std::min(thickness, box.width);
    fill_rectangle(image, {box.top, box.left, rows, box.width}, colour);
    fill_rectangle(image, {box.top + box.height - rows, box.left, rows, box.width}, colour);
    fill_rectangle(image, {box.top, box.left, box.height, columns}, colour);
    fill_rectangle(image, {box.top, box.left + box.width - columns, box.height, columns}, colour);
}

void draw_text(Image& image, std::int64_t top, std::int64_t left, std::string_view text, Rgb colour,
               std::int64_t scale) {
    check<UsageError>(scale > 0, "text {} times as large as its font, expected 1 or more", scale);
    std::int64_t at_y = top, at_x = left;
    for (const char c : text) {
        if (c == '\n') {
            at_y += (kGlyphHeight + 1) * scale, at_x = left;
            continue;
        }
        for (int row = 0; row < kGlyphHeight; ++row)
            for (int column = 0; column < kGlyphWidth; ++column)
                if (glyph_has(c, row, column))
                    fill_rectangle(image, {at_y + row * scale, at_x + column * scale, scale, scale}, colour);
        at_x += (kGlyphWidth + 1) * scale;
    }
}

ImageSize text_size(std::string_view text, std::int64_t scale) {
    std::int64_t lines = 1, line = 0, longest = 0;
    for (const char c : text) {
        if (c == '\n')
            ++lines, line = 0;
        else
            longest = std::max(longest, ++line);
    }
    if (longest == 0) return {};
    return {(lines * (kGlyphHeight + 1) - 1) * scale, (longest * (kGlyphWidth + 1) - 1) * scale};
}

void draw_label(Image& image, std::int64_t top, std::int64_t left, std::string_view text, Rgb colour, Rgb ground,
                std::int64_t scale) {
    const ImageSize inner = text_size(text, scale);
    if (inner.width == 0) return;
    const ImageSize size{inner.height + 2 * scale, inner.width + 2 * scale};
    const std::int64_t y = std::max<std::int64_t>(std::min(top, image.height - size.height), 0);
    const std::int64_t x = std::max<std::int64_t>(std::min(left, image.width - size.width), 0);
    fill_rectangle(image, {y, x, size.height, size.width}, ground);
    draw_text(image, y + scale, x + scale, text, colour, scale);
}

void paste(Image& image, const Image& part, std::int64_t top, std::int64_t left) {
    const PixelBox seen = visible(image, {top, left, part.height, part.width});
    for (std::int64_t y = seen.top; y < seen.top + seen.height; ++y) {
        for (std::int64_t x = seen.left; x < seen.left + seen.width; ++x) {
            const std::uint8_t* from = part.at(y - top, x - left);
            put(image, y, x, {from[0], from[part.channels / 2], from[part.channels - 1]});
        }
    }
}

Image contact_sheet(std::span<const Image> images, std::span<const std::string> captions, std::int64_t columns) {
    check<UsageError>(!images.empty() && columns > 0, "a sheet of {} images in {} columns, expected some of both",
                      images.size(), columns);
    check<UsageError>(captions.empty() || captions.size() == images.size(), "{} captions for {} images",
                      captions.size(), images.size());
    constexpr std::int64_t kGap = 4;
    constexpr Rgb kInk{32, 32, 32};
    ImageSize cell, caption;
    for (const Image& image : images) cell = {std::max(cell.height, image.height), std::max(cell.width, image.width)};
    for (const std::string& text : captions) {
        const ImageSize size = text_size(text);
        caption = {std::max(caption.height, size.height), std::max(caption.width, size.width)};
    }
    cell.width = std::max(cell.width, caption.width);
    const std::int64_t below = caption.height > 0 ? caption.height + kGap / 2 : 0;
    const auto count = std::int64_t(images.size());
    columns = std::min(columns, count);
    const std::int64_t rows = (count + columns - 1) / columns;
    Image sheet(kGap + rows * (cell.height + below + kGap), kGap + columns * (cell.width + kGap), 3, 255);
    for (std::int64_t i = 0; i < count; ++i) {
        const Image& image = images[std::size_t(i)];
        const std::int64_t top = kGap + i / columns * (cell.height + below + kGap);
        const std::int64_t left = kGap + i % columns * (cell.width + kGap);
        paste(sheet, image, top + (cell.height - image.height) / 2, left + (cell.width - image.width) / 2);
        if (captions.empty()) continue;
        const std::string& text = captions[std::size_t(i)];
        draw_text(sheet, top + cell.height + kGap / 2, left + (cell.width - text_size(text).width) / 2, text, kInk);
    }
    return sheet;
}

}  // namespace invar
