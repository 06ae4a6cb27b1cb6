// A text block: a few lines in one font, laid out flat, then bent, tilted and turned as a whole. Outlines of letters
// and polygons around words go through the same map, so that labels fit whatever is done to the text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "invar/detect/polygon.h"
#include "invar/image/augment.h"
#include "invar/image/transform.h"
#include "invar/scene/fonts.h"

namespace invar::scene {

// From the block's own plane, with the middle of the block at 0, into the image.
class BlockMap {
  public:
    // `radius` of the arc along which lines run: positive bends them like a gate, negative like a bowl, 0 not at all.
    BlockMap(double radius, const Matrix3& matrix) : radius_(radius), matrix_(matrix) {}
    detect::Point operator()(detect::Point p) const;
    bool is_curved() const { return radius_ != 0; }
    // A rectangle of the plane: four corners from the upper left on; on an arc as many along either long side as
    // needed.
    detect::Polygon outline(const detect::Bounds& box) const;
    BlockMap moved(double x, double y) const;

  private:
    double radius_;
    Matrix3 matrix_;  // of the plane, bent already
};

struct BlockWord {
    std::string text;
    std::vector<detect::Polygon> contours;  // in the block's plane
    detect::Bounds ink;
};

struct TextBlock {
    std::vector<BlockWord> words;
    detect::Bounds extent;  // of all ink
    double size = 0;        // of the font
};

struct BlockStyle {
    double size = 32;        // of the em, in pixels
    double tracking = 0;     // between letters, in ems
    double leading = 1.15;   // from line to line, in ems
    double word_gap = 0.35;  // in ems
    double stretch = 1;      // of the width
    enum class Align { left, centre, right } align = Align::centre;
};

// Words without ink are left out.
TextBlock lay_out(const std::vector<std::vector<std::string>>& lines, const Font& font, const BlockStyle& style);

// How a block is seen: turned by `degrees`, and tilted where `tilted`.
struct BlockView {
    double degrees = 0;
    bool tilted = false, curved = false;
};
BlockMap draw_map(RandomDraws& draws, const TextBlock& block, const BlockView& view);

}  // namespace invar::scene
