// Cairo and Pango in C++: pointers that free what they own, colours, and a surface as an Image.
// Only the files of libinvar_pango.so include this.
#pragma once

#include <cairo.h>
#include <fontconfig/fontconfig.h>
#include <pango/pangocairo.h>

#include <memory>

#include "invar/image/image.h"

namespace invar::scene {

template <auto Free>
struct FreedBy {
    template <class T>
    void operator()(T* object) const {
        Free(object);
    }
};

using CairoSurface = std::unique_ptr<cairo_surface_t, FreedBy<cairo_surface_destroy>>;
using CairoContext = std::unique_ptr<cairo_t, FreedBy<cairo_destroy>>;
using CairoPattern = std::unique_ptr<cairo_pattern_t, FreedBy<cairo_pattern_destroy>>;
using CairoPath = std::unique_ptr<cairo_path_t, FreedBy<cairo_path_destroy>>;
using FontOptions = std::unique_ptr<cairo_font_options_t, FreedBy<cairo_font_options_destroy>>;
using FontDescription = std::unique_ptr<PangoFontDescription, FreedBy<pango_font_description_free>>;
using FontConfig = std::unique_ptr<FcConfig, FreedBy<FcConfigDestroy>>;
template <class T>
using GObjectPtr = std::unique_ptr<T, FreedBy<g_object_unref>>;

// A surface with what draws on it. An Error where Cairo has no memory for it.
class Canvas {
  public:
    Canvas(cairo_format_t format, std::int64_t height, std::int64_t width);
    cairo_t* cairo() const { return context_.get(); }
    Image rgb() const;    // of CAIRO_FORMAT_RGB24
    Image alpha() const;  // of CAIRO_FORMAT_A8
    // The mean brightness of a box, 0 to 255, of CAIRO_FORMAT_RGB24.
    double brightness(const PixelBox& box) const;

  private:
    std::int64_t height_, width_;
    CairoSurface surface_;
    CairoContext context_;
};

}  // namespace invar::scene
