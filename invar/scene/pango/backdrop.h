// Backgrounds by Cairo: skies and hills, meshes of colour, papers with patterns, curves and dashes across them.
// Only the files of libinvar_pango.so include this.
#pragma once

#include "invar/image/augment.h"
#include "invar/scene/pango/cairo.h"

namespace invar::scene {

void draw_backdrop(const Canvas& canvas, double height, double width, RandomDraws& draws);

}  // namespace invar::scene
