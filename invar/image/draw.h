// Drawing into images, so that boxes, outlines and labels can be looked at: lines, polygons, rectangles, text, and
// sheets of many images. What lies outside the image is left out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/image/image.h"

namespace invar {

// Pixel x has its centre at x + 0.5.
struct ImagePoint {
    double x = 0;
    double y = 0;
};

// With smooth edges and round ends.
void draw_line(Image& image, ImagePoint from, ImagePoint to, Rgb colour, double thickness = 1);
// The outline, closed.
void draw_polygon(Image& image, std::span<const ImagePoint> corners, Rgb colour, double thickness = 1);
// A frame of whole pixels within the box, and the box filled.
void draw_rectangle(Image& image, const PixelBox& box, Rgb colour, std::int64_t thickness = 1);
void fill_rectangle(Image& image, const PixelBox& box, Rgb colour);

// Its upper left corner at (top, left), each pixel of the font `scale` pixels wide. A newline starts another line.
void draw_text(Image& image, std::int64_t top, std::int64_t left, std::string_view text, Rgb colour,
               std::int64_t scale = 1);
ImageSize text_size(std::string_view text, std::int64_t scale = 1);
// The text on a ground of its own; moved so that as much as fits is inside the image.
void draw_label(Image& image, std::int64_t top, std::int64_t left, std::string_view text, Rgb colour, Rgb ground,
                std::int64_t scale = 1);

void paste(Image& image, const Image& part, std::int64_t top, std::int64_t left);

// Images in rows of so many columns, each in the middle of its cell with its caption below; there are as many captions
// as images, or none. All images are taken as RGB.
Image contact_sheet(std::span<const Image> images, std::span<const std::string> captions, std::int64_t columns);

}  // namespace invar
