// The pixels of a polygon: those whose centres even-odd filling covers, row by row.
// A centre on an edge belongs to the polygon on its right or below, so that neighbours share no pixel.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/detect/polygon.h"

namespace invar::detect {

// Columns first to last - 1 of a row.
struct Span {
    std::int64_t row = 0, first = 0, last = 0;
};

// Rows from above, spans of a row from the left; nothing outside the image. Points that are NaN make it empty.
std::vector<Span> spans_of(const Polygon& polygon, std::int64_t height, std::int64_t width);

}  // namespace invar::detect
