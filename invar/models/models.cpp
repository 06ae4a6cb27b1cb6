#include "invar/models/models.h"

#include "invar/core/error.h"
#include "invar/core/suggest.h"

namespace invar {

namespace {

struct Maker {
    const char* name;
    std::unique_ptr<Module> (*make)(const ModelOptions&);
};
constexpr Maker kMakers[] = {{"mlp", make_mlp}, {"convnet", make_convnet}};

}  // namespace

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const Maker& maker : kMakers) names.push_back(maker.name);
    return names;
}

std::unique_ptr<Module> make_model(const ModelOptions& options) {
    for (const Maker& maker : kMakers)
        if (options.name == maker.name) return maker.make(options);
    const std::vector<std::string> names = model_names();
    const std::string near = nearest(options.name, names);
    fail<UsageError>("unknown model '{}'{}; the models are {}", options.name,
                     near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

}  // namespace invar
