#include "invar/detect/label_maps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "invar/core/error.h"
#include "invar/detect/raster.h"

namespace invar::detect {

namespace {

// The square distance of a text's pixels to its border, as far as `reach`, on the part of the image that this concerns.
class DistanceField {
  public:
    DistanceField(const Polygon& polygon, double reach, std::int64_t height, std::int64_t width)
        : limit_(float(reach * reach)) {
        const Bounds bounds = bounds_of(polygon);
        top_ = clamped(bounds.top - reach - 1, height), bottom_ = clamped(bounds.bottom + reach + 1, height);
        left_ = clamped(bounds.left - reach - 1, width), right_ = clamped(bounds.right + reach + 1, width);
        values_.assign(std::size_t((bottom_ - top_) * (right_ - left_)), limit_);
        for (std::size_t i = 0; i < polygon.size(); ++i) add_edge(polygon[i], polygon[(i + 1) % polygon.size()], reach);
    }
    std::int64_t top() const { return top_; }
    std::int64_t bottom() const { return bottom_; }
    std::int64_t left() const { return left_; }
    std::int64_t right() const { return right_; }
    // That of pixel (row, left()) and those behind it.
    const float* row(std::int64_t row) const { return values_.data() + (row - top_) * (right_ - left_); }
    // The square of what counts as too far to matter; pixels there have just this value.
    float limit() const { return limit_; }

  private:
    static std::int64_t clamped(double coordinate, std::int64_t end) {
        return std::int64_t(std::clamp(std::floor(coordinate), 0.0, double(end)));
    }
    // Each edge looks at the pixels within reach of it and no others.
    void add_edge(Point a, Point b, double reach) {
        const std::int64_t top = std::max(top_, clamped(std::min(a.y, b.y) - reach - 1, bottom_));
        const std::int64_t bottom = clamped(std::max(a.y, b.y) + reach + 1, bottom_);
        const std::int64_t left = std::max(left_, clamped(std::min(a.x, b.x) - reach - 1, right_));
        const std::int64_t right = clamped(std::max(a.x, b.x) + reach + 1, right_);
        const double squared = (b.x - a.x) * (b.x - a.x) + (b.y - a.y) * (b.y - a.y);
        const float dx = float(b.x - a.x), dy = float(b.y - a.y), per_square = float(squared > 0 ? 1 / squared : 0);
        const float first_x = float(double(left) + 0.5 - a.x);
        for (std::int64_t y = top; y < bottom; ++y) {
            const float py = float(double(y) + 0.5 - a.y);
            float* values = values_.data() + (y - top_) * (right_ - left_) + (left - left_);
            for (int i = 0; i < int(right - left); ++i) {
                const float px = first_x + float(i);
                const float t = std::min(std::max((px * dx + py * dy) * per_square, 0.0f), 1.0f);
                const float ex = px - t * dx, ey = py - t * dy, distance = ex * ex + ey * ey;
                values[i] = distance < values[i] ? distance : values[i];
            }
        }
    }

    float limit_;
    std::int64_t top_ = 0, bottom_ = 0, left_ = 0, right_ = 0;
    std::vector<float> values_;
};

class Drawing {
  public:
    Drawing(const LabelPlanes& planes, const LabelOptions& options) : planes_(planes), options_(options) {
        const std::int64_t pixels = planes.height * planes.width;
        std::fill_n(planes.probability, pixels, 0.0f);
        std::fill_n(planes.probability_mask, pixels, 1.0f);
        std::fill_n(planes.threshold, pixels, options.threshold_min);
        std::fill_n(planes.threshold_mask, pixels, 0.0f);
    }

    DrawnText draw(const TextRegion& text) {
        const Polygon whole = cleaned(text.polygon);
        DrawnText drawn;
        drawn.fate = text.dont_care ? Fate::dont_care : is_simple(whole) ? Fate::drawn : Fate::not_simple;
        if (drawn.fate == Fate::drawn) draw(visible_part(whole), drawn);
        if (drawn.fate != Fate::drawn) mask_out(whole);
        return drawn;
    }

  private:
    Polygon visible_part(const Polygon& whole) const {
        std::vector<Polygon> pieces = clip_to_image(whole, double(planes_.height), double(planes_.width));
        const auto largest = std::max_element(pieces.begin(), pieces.end(), [](const Polygon& a, const Polygon& b) {
            return std::abs(signed_area(a)) < std::abs(signed_area(b));
        });
        return largest == pieces.end() ? Polygon() : std::move(*largest);
    }

    void draw(const Polygon& polygon, DrawnText& drawn) {
        drawn.distance = shrink_distance(polygon, options_.shrink_ratio);
        drawn.fate = polygon.empty()                                                   ? Fate::outside_image
                     : min_area_rectangle(polygon).short_side < options_.min_text_size ? Fate::too_small
                     : drawn.distance > 0                                              ? Fate::drawn
                                                                                       : Fate::vanished;
        if (drawn.fate != Fate::drawn) return;
        const DistanceField field(polygon, drawn.distance, planes_.height, planes_.width);
        const std::vector<Span> inside = spans_of(polygon, planes_.height, planes_.width);
        if (draw_probability(field, inside, drawn))
            draw_threshold(field, inside);
        else
            drawn.fate = Fate::vanished;
    }

    // A pixel is in the shrunk text where it is in the text and no nearer to the border than D.
    bool draw_probability(const DistanceField& field, const std::vector<Span>& inside, DrawnText& drawn) {
        bool any = false;
        for (const Span& span : inside) {
            const float* distances = field.row(span.row) - field.left();
            float* out = planes_.probability + span.row * planes_.width;
            for (std::int64_t x = span.first; x < span.last; ++x) {
                if (distances[x] < field.limit()) continue;
                out[x] = 1;
                if (!any) drawn.row = span.row, drawn.column = x;
                any = true;
            }
        }
        return any;
    }

    void draw_threshold(const DistanceField& field, const std::vector<Span>& inside) {
        const float low = options_.threshold_min, range = options_.threshold_max - low;
        const float per_limit = 1 / field.limit();
        for (std::int64_t y = field.top(); y < field.bottom(); ++y) {
            const float* distances = field.row(y) - field.left();
            float* values = planes_.threshold + y * planes_.width;
            float* mask = planes_.threshold_mask + y * planes_.width;
            for (std::int64_t x = field.left(); x < field.right(); ++x) {
                const float near = 1 - std::sqrt(distances[x] * per_limit);  // 1 on the border, 0 at D
                values[x] = std::max(values[x], low + range * near);
                mask[x] = distances[x] < field.limit() ? 1.0f : mask[x];
            }
        }
        for (const Span& span : inside)
            std::fill_n(planes_.threshold_mask + span.row * planes_.width + span.first, span.last - span.first, 1.0f);
    }

    void mask_out(const Polygon& polygon) {
        for (const Span& span : spans_of(polygon, planes_.height, planes_.width))
            std::fill_n(planes_.probability_mask + span.row * planes_.width + span.first, span.last - span.first, 0.0f);
    }

    const LabelPlanes& planes_;
    const LabelOptions& options_;
};

}  // namespace

std::string_view name_of(Fate fate) {
    switch (fate) {
        case Fate::drawn:
            return "drawn";
        case Fate::dont_care:
            return "don't care";
        case Fate::too_small:
            return "too small";
        case Fate::vanished:
            return "nothing left when shrunk";
        case Fate::not_simple:
            return "crosses itself";
        case Fate::outside_image:
            return "outside the image";
    }
    return "";
}

double shrink_distance(const Polygon& polygon, double shrink_ratio) {
    const double length = perimeter(polygon);
    return length > 0 ? std::abs(signed_area(polygon)) * (1 - shrink_ratio * shrink_ratio) / length : 0;
}

std::vector<DrawnText> draw_labels(std::span<const TextRegion> texts, const LabelPlanes& planes,
                                   const LabelOptions& options, const Stopped& stopped) {
    check<UsageError>(planes.height >= 0 && planes.width >= 0, "label maps of {} x {} pixels cannot be made",
                      planes.height, planes.width);
    check<UsageError>(options.shrink_ratio >= 0 && options.shrink_ratio < 1, "shrink_ratio is {}; it lies in [0, 1)",
                      options.shrink_ratio);
    check<UsageError>(options.threshold_min <= options.threshold_max, "threshold_min {} is above threshold_max {}",
                      options.threshold_min, options.threshold_max);
    Drawing drawing(planes, options);
    std::vector<DrawnText> drawn;
    drawn.reserve(texts.size());
    for (const TextRegion& text : texts) {
        leave_if(stopped);
        drawn.push_back(drawing.draw(text));
    }
    return drawn;
}

LabelMaps::LabelMaps(std::int64_t height_, std::int64_t width_) : height(height_), width(width_) {
    check<UsageError>(height >= 0 && width >= 0, "label maps of {} x {} pixels cannot be made", height, width);
    for (std::vector<float>* map : {&probability, &probability_mask, &threshold, &threshold_mask})
        map->resize(std::size_t(height) * std::size_t(width));
}

LabelMaps make_label_maps(std::span<const TextRegion> texts, std::int64_t height, std::int64_t width,
                          const LabelOptions& options) {
    LabelMaps maps(height, width);
    draw_labels(texts, maps.planes(), options);
    return maps;
}

}  // namespace invar::detect
