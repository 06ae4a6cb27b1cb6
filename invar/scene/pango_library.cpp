// Pango and Cairo bring some thirty libraries, which few programs need: they are loaded when they are first asked for.
#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "invar/core/error.h"
#include "invar/core/loaded_from.h"
#include "invar/scene/pango/start.h"
#include "invar/scene/scene.h"

namespace invar::scene {

namespace {

constexpr const char* kLibrary = "libinvar_pango.so";

struct Loaded {
    PangoStart start = nullptr;
    std::string why_not;
};

Loaded load() {
    const std::filesystem::path path = loaded_from(reinterpret_cast<void*>(&has_pango)) / kLibrary;
    std::error_code error;
    if (!std::filesystem::exists(path, error))
        return {nullptr,
                "this build has no renderer of Pango and Cairo (libpango1.0-dev libcairo2-dev were not found, "
                "or the library is static); make_freetype_renderer is always there"};
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const reason = dlerror();
        return {nullptr,
                fmt::format("{} cannot be loaded: {}", kLibrary, reason != nullptr ? reason : "no reason given")};
    }
    const auto start = reinterpret_cast<PangoStart>(dlsym(library, kPangoStart));
    if (start == nullptr) return {nullptr, fmt::format("{} is of another version of Invar", path.string())};
    return {start, ""};
}

const Loaded& loaded() {
    static const Loaded once = load();
    return once;
}

}  // namespace

bool has_pango() {
    return loaded().start != nullptr;
}

std::unique_ptr<SceneRenderer> make_pango_renderer(const SceneOptions& options, FontSet fonts) {
    check(has_pango(), "{}", loaded().why_not);
    std::unique_ptr<SceneRenderer> renderer;
    loaded().start(options, fonts, renderer);
    return renderer;
}

std::unique_ptr<SceneRenderer> make_pango_renderer(const SceneOptions& options) {
    check(has_pango(), "{}", loaded().why_not);
    return make_pango_renderer(options, FontSet::test());
}

}  // namespace invar::scene
