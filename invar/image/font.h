// A tiny font that is always there, for labels in images: fixed width, printable ASCII.
#pragma once

namespace invar {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

// Whether a glyph has ink there. What is not printable ASCII looks like '?'.
bool glyph_has(char c, int row, int column);

}  // namespace invar
