// Models by name: each is registered with its keys and with what makes it for the data at hand.
#pragma once

#include <functional>
#include <memory>

#include "invar/config/part.h"
#include "invar/data/dataset.h"
#include "invar/nn/module.h"

namespace invar {

using ModelMaker = std::function<std::unique_ptr<Module>(const void* options, const DataInfo& data)>;

// For an object at namespace scope, in the file that defines the model:
//
//   const RegisterModel<TinyOptions> kTiny{"tiny", "Two layers.", make_tiny,
//                                          {key("width", &TinyOptions::width, at_least(1), "Of the layer between.")}};
template <class Options>
struct RegisterModel {
    template <class Make>  // std::unique_ptr<Module>(const Options&, const DataInfo&)
    RegisterModel(std::string name, std::string about, Make make, std::vector<Key> keys = {}) noexcept {
        register_part<Options>("model", std::move(name), std::move(about), std::move(keys),
                               ModelMaker([make](const void* options, const DataInfo& data) {
                                   return make(*static_cast<const Options*>(options), data);
                               }));
    }
};

// With fresh weights, drawn from default_generator(). A UsageError where it cannot fit the data.
std::unique_ptr<Module> make_model(const Part& model, const DataInfo& data);

}  // namespace invar
