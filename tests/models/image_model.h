// A model by name for images of a size: what tests of models and of steps share.
#pragma once

#include "invar/models/models.h"
#include "invar/models/registry.h"

namespace invar {

struct ImageModel {
    std::string name = "convnet";
    std::int64_t height = 28, width = 28, channels = 1, classes = 10;
    double dropout = -1;
    std::vector<std::int64_t> hidden = {512};  // of the mlp
};

inline std::unique_ptr<Module> make_image_model(const ImageModel& wanted) {
    Part model("model", wanted.name);
    model.set("dropout", std::to_string(wanted.dropout));
    if (wanted.name == "mlp") model.as<MlpOptions>().hidden = wanted.hidden;
    return make_model(model, {{wanted.height, wanted.width, wanted.channels}, wanted.classes});
}

}  // namespace invar
