#include "invar/scene/fonts.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <tuple>
#include <type_traits>

#include "invar/core/error.h"

namespace invar::scene {

namespace {

using detect::Point;
namespace fs = std::filesystem;

constexpr char kPackages[] = "fonts-dejavu-core fonts-liberation fonts-freefont-ttf";
constexpr std::size_t kMostFonts = 256;  // of a set: outlines of more would only fill memory

struct LibraryDeleter {
    void operator()(FT_Library library) const { FT_Done_FreeType(library); }
};
struct FaceDeleter {
    void operator()(FT_Face face) const { FT_Done_Face(face); }
};
using Library = std::unique_ptr<std::remove_pointer_t<FT_Library>, LibraryDeleter>;
using Face = std::unique_ptr<std::remove_pointer_t<FT_Face>, FaceDeleter>;

Library open_library() {
    FT_Library library = nullptr;
    check(FT_Init_FreeType(&library) == 0, "FreeType does not start");
    return Library(library);
}

// Nothing where it is no font.
Face open_face(const Library& library, const fs::path& path) {
    FT_Face face = nullptr;
    if (FT_New_Face(library.get(), path.c_str(), 0, &face) != 0) return nullptr;
    return Face(face);
}

bool has_ascii(FT_Face face) {
    if (!FT_IS_SCALABLE(face) || face->units_per_EM == 0 || face->family_name == nullptr) return false;
    if (FT_Select_Charmap(face, FT_ENCODING_UNICODE) != 0) return false;
    for (FT_ULong c = '!'; c <= '~'; ++c)
        if (FT_Get_Char_Index(face, c) == 0) return false;
    return true;
}

// Cuts curves into chords that leave them by no more than a fraction of a pixel.
class Tracer {
  public:
    explicit Tracer(double em) : scale_(1 / em) {}
    std::vector<detect::Polygon> contours;

    void move_to(const FT_Vector* to) { contours.push_back({at(to)}); }
    void line_to(const FT_Vector* to) { contours.back().push_back(at(to)); }
    void conic_to(const FT_Vector* control, const FT_Vector* to) {
        const Point a = contours.back().back(), b = at(control), c = at(to);
        const int steps = steps_for(std::hypot(a.x - 2 * b.x + c.x, a.y - 2 * b.y + c.y) / 4);
        for (int i = 1; i <= steps; ++i) {
            const double t = double(i) / steps, s = 1 - t;
            add(s * s * a.x + 2 * s * t * b.x + t * t * c.x, s * s * a.y + 2 * s * t * b.y + t * t * c.y);
        }
    }
    void cubic_to(const FT_Vector* first, const FT_Vector* second, const FT_Vector* to) {
        const Point a = contours.back().back(), b = at(first), c = at(second), d = at(to);
        const double bend = std::max(std::hypot(a.x - 2 * b.x + c.x, a.y - 2 * b.y + c.y),
                                     std::hypot(b.x - 2 * c.x + d.x, b.y - 2 * c.y + d.y));
        const int steps = steps_for(bend * 0.75);
        for (int i = 1; i <= steps; ++i) {
            const double t = double(i) / steps, s = 1 - t;
            const double wa = s * s * s, wb = 3 * s * s * t, wc = 3 * s * t * t, wd = t * t * t;
            add(wa * a.x + wb * b.x + wc * c.x + wd * d.x, wa * a.y + wb * b.y + wc * c.y + wd * d.y);
        }
    }

  private:
    static int steps_for(double deviation) {
        constexpr double kTolerance = 0.002;  // of an em
        return std::clamp(int(std::ceil(std::sqrt(deviation / kTolerance))), 1, 12);
    }
    Point at(const FT_Vector* v) const { return {double(v->x) * scale_, -double(v->y) * scale_}; }
    void add(double x, double y) { contours.back().push_back({x, y}); }
    double scale_;
};

Glyph trace(FT_Face face, FT_ULong c) {
    Glyph glyph;
    if (FT_Load_Char(face, c, FT_LOAD_NO_SCALE | FT_LOAD_NO_BITMAP) != 0) return glyph;
    Tracer tracer(double(face->units_per_EM));
    glyph.advance = double(face->glyph->metrics.horiAdvance) / double(face->units_per_EM);
    if (face->glyph->format != FT_GLYPH_FORMAT_OUTLINE) return glyph;
    FT_Outline_Funcs functions{};
    functions.move_to = [](const FT_Vector* to, void* user) { return static_cast<Tracer*>(user)->move_to(to), 0; };
    functions.line_to = [](const FT_Vector* to, void* user) { return static_cast<Tracer*>(user)->line_to(to), 0; };
    functions.conic_to = [](const FT_Vector* b, const FT_Vector* c, void* user) {
        return static_cast<Tracer*>(user)->conic_to(b, c), 0;
    };
    functions.cubic_to = [](const FT_Vector* b, const FT_Vector* c, const FT_Vector* d, void* user) {
        return static_cast<Tracer*>(user)->cubic_to(b, c, d), 0;
    };
    if (FT_Outline_Decompose(&face->glyph->outline, &functions, &tracer) != 0) return glyph;
    glyph.contours = std::move(tracer.contours);
    std::vector<Point> points;
    for (const detect::Polygon& contour : glyph.contours) points.insert(points.end(), contour.begin(), contour.end());
    if (!points.empty()) glyph.ink = detect::bounds_of(points);
    return glyph;
}

// Without what only tells widths and weights apart.
std::string_view base_name(std::string_view family) {
    constexpr std::string_view kVariants[] = {"Condensed", "Narrow", "Light",    "ExtraLight", "Thin",
                                              "Medium",    "Black",  "SemiBold", "ExtraBold",  "Display"};
    for (;;) {
        const std::size_t space = family.rfind(' ');
        if (space == family.npos || std::ranges::find(kVariants, family.substr(space + 1)) == std::end(kVariants))
            return family;
        family = family.substr(0, space);
    }
}

bool is_font_file(const fs::path& path) {
    std::string extension = path.extension().string();
    std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    return extension == ".ttf" || extension == ".otf";
}

std::string joined(std::span<const fs::path> folders) {
    std::string text;
    for (const fs::path& folder : folders) text += (text.empty() ? "" : ", ") + folder.string();
    return text.empty() ? "no folder at all" : text;
}

}  // namespace

class FontFinder {
  public:
    static FontSet find(std::span<const fs::path> folders, const char* kind,
                        const std::function<bool(const std::string&)>& wanted) {
        const Library library = open_library();
        std::vector<Font> found;
        bool any = false;
        for (const fs::path& path : files_in(folders)) {
            const Face face = open_face(library, path);
            if (!face || !has_ascii(face.get())) continue;
            any = true;
            if (!wanted(face->family_name)) continue;
            found.push_back({face->family_name, face->style_name ? face->style_name : "", path, {}});
        }
        check(any, "no font with Latin letters in {}; install {}", joined(folders), kPackages);
        check(!found.empty(), "all fonts in {} belong to the other half, and none is left for {}; install {}",
              joined(folders), kind, kPackages);
        // The same font may lie in two folders; folders are not alike everywhere, names of files are.
        const auto key = [](const Font& font) { return std::tuple(font.family, font.style, font.path.filename()); };
        std::ranges::sort(found, {}, key);
        found.erase(
            std::unique(found.begin(), found.end(),
                        [](const Font& a, const Font& b) { return a.family == b.family && a.style == b.style; }),
            found.end());
        std::vector<Font> fonts;
        const std::size_t count = std::min(found.size(), kMostFonts);
        for (std::size_t i = 0; i < count; ++i) {
            Font& font = found[i * found.size() / count];
            const Face face = open_face(library, font.path);
            check<IoError>(face && has_ascii(face.get()), "{}: it was a font a moment ago, and is none now",
                           font.path.string());
            for (FT_ULong c = ' '; c <= '~'; ++c) font.glyphs.push_back(trace(face.get(), c));
            fonts.push_back(std::move(font));
        }
        return FontSet(std::move(fonts));
    }

  private:
    static std::vector<fs::path> files_in(std::span<const fs::path> folders) {
        std::vector<fs::path> files;
        for (const fs::path& folder : folders) {
            std::error_code ignored;  // a folder that cannot be read has no fonts for us
            const auto options =
                fs::directory_options::skip_permission_denied | fs::directory_options::follow_directory_symlink;
            fs::recursive_directory_iterator entry(folder, options, ignored);
            for (; !ignored && entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
                if (entry.depth() > 8) entry.disable_recursion_pending();  // links may run in circles
                std::error_code other;  // pipes and devices are none, whatever they are called
                if (is_font_file(entry->path()) && fs::is_regular_file(entry->path(), other))
                    files.push_back(entry->path());
            }
        }
        std::ranges::sort(files);
        return files;
    }
};

bool is_test_family(std::string_view family) {
    // FNV-1a, then mixed. Begun such that of each of the packages above tests get one family: serif, sans and mono.
    std::uint64_t hash = 0xcbf29ce484222325u + 58;
    for (const char c : base_name(family)) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3u;
    hash = (hash ^ hash >> 31) * 0x9e3779b97f4a7c15u;
    return (hash >> 32) % 10 < 3;
}

std::vector<fs::path> font_folders() {
    std::vector<fs::path> folders = {"/usr/share/fonts", "/usr/local/share/fonts"};
    if (const char* home = std::getenv("HOME")) folders.push_back(fs::path(home) / ".fonts");
    return folders;
}

FontSet FontSet::all(std::span<const fs::path> folders) {
    return FontFinder::find(folders, "any use", [](const std::string&) { return true; });
}

FontSet FontSet::train(std::span<const fs::path> folders) {
    return FontFinder::find(folders, "training", [](const std::string& family) { return !is_test_family(family); });
}

FontSet FontSet::test(std::span<const fs::path> folders) {
    return FontFinder::find(folders, "tests", [](const std::string& family) { return is_test_family(family); });
}

std::vector<std::string> FontSet::families() const {
    std::vector<std::string> names;
    for (const Font& font : *fonts_)
        if (names.empty() || names.back() != font.family) names.push_back(font.family);
    return names;
}

}  // namespace invar::scene
