// The models, each in a file of its own, and the one place that makes one by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "invar/nn/module.h"

namespace invar {

struct ModelOptions {
    std::string name = "convnet";
    std::int64_t height = 28, width = 28, channels = 1;  // of the input image
    std::int64_t classes = 10;
    double dropout = -1;                       // negative: the model's own rates; 0: none at all
    std::vector<std::int64_t> hidden = {512};  // mlp: the widths of its hidden layers
};

std::unique_ptr<Module> make_mlp(const ModelOptions& options);
std::unique_ptr<Module> make_convnet(const ModelOptions& options);

// Throws a UsageError for a name it does not know.
std::unique_ptr<Module> make_model(const ModelOptions& options);
std::vector<std::string> model_names();

}  // namespace invar
