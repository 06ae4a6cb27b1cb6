// Words set by Pango: a font map of its own with the fonts that were given and no others, a layout for each word, and
// paths of letters that can be bent. A writer serves one thread at a time. Only libinvar_pango.so includes this.
#pragma once

#include <string>
#include <vector>

#include "invar/detect/polygon.h"
#include "invar/scene/fonts.h"
#include "invar/scene/pango/cairo.h"

namespace invar::scene {

struct SetWord {
    std::string text;
    GObjectPtr<PangoLayout> layout;
    detect::Point at;    // the layout's upper left corner
    detect::Bounds ink;  // what Pango says of its ink, moved there
};

struct SetText {
    std::vector<SetWord> words;
    detect::Bounds ink;  // of all; its middle is at 0
};

class PangoWriter {
  public:
    explicit PangoWriter(const FontSet& fonts);
    ~PangoWriter();
    PangoWriter(const PangoWriter&) = delete;
    PangoWriter& operator=(const PangoWriter&) = delete;
    // Lines below one another, centred.
    SetText set(const std::vector<std::vector<std::string>>& lines, const Font& font, double size) const;

  private:
    FontConfig config_;
    GObjectPtr<PangoFontMap> map_;
    GObjectPtr<PangoContext> context_;
};

// How a flat text is bent before Cairo's matrix turns it: along an arc, or seen from the side.
struct Bend {
    double radius = 0;                // of the arc; 0 where there is none
    double depth_x = 0, depth_y = 0;  // growth of the distance for each pixel

    bool is_flat() const { return radius == 0 && depth_x == 0 && depth_y == 0; }
    detect::Point operator()(detect::Point p) const;
};

// The path of a word's letters, in the context's user space.
void trace_word(cairo_t* cr, const SetWord& word, const Bend& bend);
// A box of the flat text in the image: four corners, or rows of points along an arc.
detect::Polygon device_outline(cairo_t* cr, const detect::Bounds& box, const Bend& bend);

}  // namespace invar::scene
