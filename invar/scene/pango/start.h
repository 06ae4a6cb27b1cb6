// Where libinvar_pango.so begins: the one function by which libinvar asks for the renderer in it.
// Only the two sides of it include this.
#pragma once

#include <memory>

#include "invar/scene/scene.h"

namespace invar::scene {

using PangoStart = void (*)(const SceneOptions& options, const FontSet& fonts,
                            std::unique_ptr<SceneRenderer>& renderer);
inline constexpr const char* kPangoStart = "invar_pango_start";

}  // namespace invar::scene
