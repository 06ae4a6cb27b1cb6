#include "invar/scene/text_block.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace invar::scene {

using detect::Bounds;
using detect::Point;
using detect::Polygon;

namespace {

void include(Bounds& all, const Bounds& part, bool first) {
    all = first ? part
                : Bounds{std::min(all.left, part.left), std::min(all.top, part.top), std::max(all.right, part.right),
                         std::max(all.bottom, part.bottom)};
}

void move(BlockWord& word, double x, double y) {
    for (Polygon& contour : word.contours)
        for (Point& p : contour) p = {p.x + x, p.y + y};
    word.ink = {word.ink.left + x, word.ink.top + y, word.ink.right + x, word.ink.bottom + y};
}

// The pen at 0; moves it on.
BlockWord set_word(const std::string& text, const Font& font, const BlockStyle& style, double& pen) {
    BlockWord word{text, {}, {}};
    const double across = style.size * style.stretch;
    for (const char c : text) {
        const Glyph& glyph = font.glyph(c);
        for (const Polygon& contour : glyph.contours) {
            Polygon& out = word.contours.emplace_back();
            for (const Point& p : contour) out.push_back({pen + p.x * across, p.y * style.size});
        }
        if (!glyph.contours.empty())
            include(word.ink,
                    {pen + glyph.ink.left * across, glyph.ink.top * style.size, pen + glyph.ink.right * across,
                     glyph.ink.bottom * style.size},
                    word.contours.size() == glyph.contours.size());
        pen += (glyph.advance + style.tracking) * across;
    }
    return word;
}

}  // namespace

Point BlockMap::operator()(Point p) const {
    if (radius_ != 0) {
        const double angle = p.x / radius_, reach = radius_ - p.y;
        p = {reach * std::sin(angle), radius_ - reach * std::cos(angle)};
    }
    const Matrix3& m = matrix_;
    const double depth = m[6] * p.x + m[7] * p.y + m[8];
    return {(m[0] * p.x + m[1] * p.y + m[2]) / depth, (m[3] * p.x + m[4] * p.y + m[5]) / depth};
}

Polygon BlockMap::outline(const Bounds& box) const {
    constexpr double kStep = 0.12;  // radians of an arc from point to point
    const int steps = is_curved() ? std::clamp(int(std::ceil(box.width() / std::abs(radius_) / kStep)), 2, 14) : 1;
    Polygon polygon;
    for (int i = 0; i <= steps; ++i) polygon.push_back((*this)({box.left + box.width() * i / steps, box.top}));
    for (int i = steps; i >= 0; --i) polygon.push_back((*this)({box.left + box.width() * i / steps, box.bottom}));
    return polygon;
}

BlockMap BlockMap::moved(double x, double y) const {
    BlockMap map = *this;
    for (int i = 0; i < 3; ++i)
        map.matrix_[std::size_t(i)] += x * matrix_[std::size_t(6 + i)],
            map.matrix_[std::size_t(3 + i)] += y * matrix_[std::size_t(6 + i)];
    return map;
}

TextBlock lay_out(const std::vector<std::vector<std::string>>& lines, const Font& font, const BlockStyle& style) {
    TextBlock block;
    block.size = style.size;
    std::vector<std::size_t> ends;
    std::vector<double> widths;
    double baseline = 0, widest = 0;
    for (const std::vector<std::string>& line : lines) {
        double pen = 0, end = 0;
        for (const std::string& text : line) {
            BlockWord word = set_word(text, font, style, pen);
            pen += style.word_gap * style.size * style.stretch;
            if (!(word.ink.width() > 0 && word.ink.height() > 0)) continue;
            end = word.ink.right;
            move(word, 0, baseline);
            block.words.push_back(std::move(word));
        }
        ends.push_back(block.words.size());
        widths.push_back(end);
        widest = std::max(widest, end);
        baseline += style.leading * style.size;
    }
    std::size_t word = 0;
    for (std::size_t i = 0; i < ends.size(); ++i)
        for (; word < ends[i]; ++word) {
            const double spare = widest - widths[i];
            move(block.words[word],
                 style.align == BlockStyle::Align::left     ? 0
                 : style.align == BlockStyle::Align::centre ? spare / 2
                                                            : spare,
                 0);
        }
    for (std::size_t i = 0; i < block.words.size(); ++i) include(block.extent, block.words[i].ink, i == 0);
    const double x = -(block.extent.left + block.extent.right) / 2, y = -(block.extent.top + block.extent.bottom) / 2;
    for (BlockWord& each : block.words) move(each, x, y);
    block.extent = {block.extent.left + x, block.extent.top + y, block.extent.right + x, block.extent.bottom + y};
    return block;
}

BlockMap draw_map(RandomDraws& draws, const TextBlock& block, const BlockView& view) {
    const double half_width = std::max(block.extent.width() / 2, 1.0);
    const double half_height = std::max(block.extent.height() / 2, 1.0);
    double radius = 0;
    if (view.curved) {
        const double sweep = draws.uniform({0.6, 2.2});  // radians from the first letter to the last
        radius = std::max(2 * half_width / sweep, block.extent.height() * 1.6);
        if (draws.chance(0.35)) radius = -radius;
    }
    double tilt_x = 0, tilt_y = 0, squeeze = 1, lean = 0;
    if (view.tilted) {
        tilt_x = draws.uniform({-0.28, 0.28}), tilt_y = draws.uniform({-0.12, 0.12});
        squeeze = 1 - std::abs(tilt_x) * draws.uniform({0.2, 0.9});
        lean = draws.uniform({-0.25, 0.25});
    }
    const double angle = view.degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
    // Leant and squeezed, then turned; the depth is 1 in the middle.
    const double depth_x = tilt_x / std::max(half_width, 2.5 * half_height),
                 depth_y = tilt_y / std::max(half_height, half_width / 3);
    return BlockMap(radius,
                    {c * squeeze, -s + c * lean * 0.5, 0, s * squeeze + c * lean * squeeze, c, 0, depth_x, depth_y, 1});
}

}  // namespace invar::scene
