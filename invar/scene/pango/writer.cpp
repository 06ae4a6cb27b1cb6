#include "invar/scene/pango/writer.h"

#include <pango/pangofc-fontmap.h>

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar::scene {

using detect::Bounds;
using detect::Point;

namespace {

FontDescription describe(const Font& font, double size) {
    FontDescription description(pango_font_description_new());
    const auto has = [&](const char* word) { return font.style.find(word) != font.style.npos; };
    pango_font_description_set_family(description.get(), font.family.c_str());
    pango_font_description_set_absolute_size(description.get(), size * PANGO_SCALE);
    pango_font_description_set_weight(description.get(), has("Bold") ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
    pango_font_description_set_style(description.get(), has("Italic")    ? PANGO_STYLE_ITALIC
                                                        : has("Oblique") ? PANGO_STYLE_OBLIQUE
                                                                         : PANGO_STYLE_NORMAL);
    if (has("Condensed")) pango_font_description_set_stretch(description.get(), PANGO_STRETCH_SEMI_CONDENSED);
    return description;
}

Bounds bounds_of(const PangoRectangle& r) {
    constexpr double kUnit = PANGO_SCALE;
    return {r.x / kUnit, r.y / kUnit, (r.x + r.width) / kUnit, (r.y + r.height) / kUnit};
}

}  // namespace

PangoWriter::PangoWriter(const FontSet& fonts)
    : config_(FcConfigCreate()), map_(pango_cairo_font_map_new_for_font_type(CAIRO_FONT_TYPE_FT)) {
    check(map_ != nullptr, "this Pango has no fonts by FreeType");
    for (std::size_t i = 0; i < fonts.size(); ++i)
        check<IoError>(
            FcConfigAppFontAddFile(config_.get(), reinterpret_cast<const FcChar8*>(fonts[i].path.c_str())) == FcTrue,
            "{}: fontconfig does not take it for a font", fonts[i].path.string());
    pango_fc_font_map_set_config(PANGO_FC_FONT_MAP(map_.get()), config_.get());
    pango_cairo_font_map_set_resolution(PANGO_CAIRO_FONT_MAP(map_.get()), 96);
    context_.reset(pango_font_map_create_context(map_.get()));
    // Letters as they were drawn, at any angle and on any machine.
    const FontOptions options(cairo_font_options_create());
    cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
    pango_cairo_context_set_font_options(context_.get(), options.get());
    pango_context_set_round_glyph_positions(context_.get(), FALSE);
}

PangoWriter::~PangoWriter() {
    // Pango's map keeps its configuration when it goes, unless it is told to let go of it.
    pango_fc_font_map_set_config(PANGO_FC_FONT_MAP(map_.get()), nullptr);
}

SetText PangoWriter::set(const std::vector<std::vector<std::string>>& lines, const Font& font, double size) const {
    const FontDescription description = describe(font, size);
    SetText text;
    double y = 0;
    for (const std::vector<std::string>& line : lines) {
        const std::size_t first = text.words.size();
        double pen = 0, height = 0;
        for (const std::string& each : line) {
            SetWord word{each, GObjectPtr<PangoLayout>(pango_layout_new(context_.get())), {pen, y}, {}};
            pango_layout_set_font_description(word.layout.get(), description.get());
            pango_layout_set_text(word.layout.get(), each.c_str(), int(each.size()));
            PangoRectangle ink, logical;
            pango_layout_get_extents(word.layout.get(), &ink, &logical);
            pen += bounds_of(logical).width() + 0.4 * size;
            height = std::max(height, bounds_of(logical).height());
            word.ink = bounds_of(ink);
            if (word.ink.width() > 0 && word.ink.height() > 0) text.words.push_back(std::move(word));
        }
        for (std::size_t i = first; i < text.words.size(); ++i) text.words[i].at.x -= (pen - 0.4 * size) / 2;
        y += height * 1.12;
    }
    std::vector<Point> corners;
    for (SetWord& word : text.words) {
        word.ink = {word.ink.left + word.at.x, word.ink.top + word.at.y, word.ink.right + word.at.x,
                    word.ink.bottom + word.at.y};
        corners.insert(corners.end(), {{word.ink.left, word.ink.top}, {word.ink.right, word.ink.bottom}});
    }
    if (corners.empty()) return text;
    text.ink = detect::bounds_of(corners);
    const Point shift{(text.ink.left + text.ink.right) / 2, (text.ink.top + text.ink.bottom) / 2};
    const auto moved = [&](const Bounds& b) {
        return Bounds{b.left - shift.x, b.top - shift.y, b.right - shift.x, b.bottom - shift.y};
    };
    for (SetWord& word : text.words) word.at = {word.at.x - shift.x, word.at.y - shift.y}, word.ink = moved(word.ink);
    text.ink = moved(text.ink);
    return text;
}

Point Bend::operator()(Point p) const {
    if (radius != 0) {
        const double angle = p.x / radius;
        p = {(radius - p.y) * std::sin(angle), radius - (radius - p.y) * std::cos(angle)};
    }
    const double depth = 1 + depth_x * p.x + depth_y * p.y;
    return {p.x / depth, p.y / depth};
}

void trace_word(cairo_t* cr, const SetWord& word, const Bend& bend) {
    cairo_new_path(cr);
    cairo_move_to(cr, word.at.x, word.at.y);
    pango_cairo_layout_path(cr, word.layout.get());
    if (bend.is_flat()) return;
    const CairoPath path(cairo_copy_path_flat(cr));
    cairo_new_path(cr);
    for (int i = 0; i < path->num_data; i += path->data[i].header.length) {
        if (path->data[i].header.type == CAIRO_PATH_CLOSE_PATH) continue;
        const Point p = bend({path->data[i + 1].point.x, path->data[i + 1].point.y});
        path->data[i + 1].point.x = p.x, path->data[i + 1].point.y = p.y;
    }
    cairo_append_path(cr, path.get());
}

detect::Polygon device_outline(cairo_t* cr, const Bounds& box, const Bend& bend) {
    const int steps = bend.radius == 0 ? 1 : std::clamp(int(8 * box.width() / std::abs(bend.radius)) + 1, 2, 12);
    detect::Polygon polygon;
    for (int i = 0; i <= 2 * steps + 1; ++i) {
        const int step = i <= steps ? i : 2 * steps + 1 - i;
        Point p = bend({box.left + box.width() * step / steps, i <= steps ? box.top : box.bottom});
        cairo_user_to_device(cr, &p.x, &p.y);
        polygon.push_back(p);
    }
    return polygon;
}

}  // namespace invar::scene
