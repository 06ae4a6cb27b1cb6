// The fonts of this machine as outlines that any number of threads may read: FreeType opens the files once, and nothing
// is asked of it afterwards. A family's name alone says whether it is for training or for tests, on every machine
// alike.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/detect/polygon.h"

namespace invar::scene {

// In ems, y downwards, the pen on the baseline at 0.
struct Glyph {
    std::vector<detect::Polygon> contours;  // curves are cut into chords; holes run the other way round
    detect::Bounds ink;                     // all zeros where there is none
    double advance = 0;
};

struct Font {
    std::string family, style;
    std::filesystem::path path;
    std::vector<Glyph> glyphs;  // of printable ASCII, ' ' to '~'

    const Glyph& glyph(char c) const { return glyphs[c >= ' ' && c <= '~' ? std::size_t(c - ' ') : 0]; }
};

// Whether fonts of that family are kept for tests. Widths and weights behind the name ("Narrow", "Light") do not
// matter, so that no font is tested whose sister was trained on.
bool is_test_family(std::string_view family);

// /usr/share/fonts, /usr/local/share/fonts and ~/.fonts, as far as they are there.
std::vector<std::filesystem::path> font_folders();

// Fonts with all of printable ASCII, sorted by family and style, so that their order is the same on every machine.
class FontSet {
  public:
    // An Error that names packages to install where there are too few.
    static FontSet all(std::span<const std::filesystem::path> folders);
    static FontSet train(std::span<const std::filesystem::path> folders);
    static FontSet test(std::span<const std::filesystem::path> folders);
    static FontSet all() { return all(font_folders()); }
    static FontSet train() { return train(font_folders()); }
    static FontSet test() { return test(font_folders()); }

    std::size_t size() const { return fonts_->size(); }
    const Font& operator[](std::size_t i) const { return (*fonts_)[i]; }
    std::vector<std::string> families() const;  // each once

  private:
    explicit FontSet(std::vector<Font> fonts) : fonts_(std::make_shared<const std::vector<Font>>(std::move(fonts))) {}
    std::shared_ptr<const std::vector<Font>> fonts_;
    friend class FontFinder;
};

}  // namespace invar::scene
