// Data sets by name: each is registered with its keys and with what opens it.
#pragma once

#include <functional>
#include <optional>

#include "invar/config/part.h"
#include "invar/data/dataset.h"

namespace invar {

struct DataMaker {
    std::function<std::shared_ptr<const Dataset>(const void* options, Split split, std::uint64_t seed)> open;
    // What the data look like, without reading the samples. Empty: they are opened and asked.
    std::function<DataInfo(const void* options)> describe;
};

// For an object at namespace scope, in the file that defines the data set:
//
//   const RegisterData<SpiralOptions> kSpirals{"spirals", "Two spirals.", open_spirals,
//                                              {key("noise", &SpiralOptions::noise, at_least(0), "...")}};
template <class Options>
struct RegisterData {
    // open: std::shared_ptr<Dataset>(const Options&, Split, std::uint64_t seed). describe: DataInfo(const Options&),
    // for labelled images [height, width, channels] and rows of tokens [length] whose sizes are known without them:
    // commands that need no samples then work without the files.
    template <class Open, class Describe = std::nullptr_t>
    RegisterData(std::string name, std::string about, Open open, std::vector<Key> keys = {},
                 Describe describe = nullptr) noexcept {
        DataMaker maker;
        maker.open = [open](const void* options, Split split, std::uint64_t seed) {
            return open(*static_cast<const Options*>(options), split, seed);
        };
        if constexpr (!std::is_same_v<Describe, std::nullptr_t>)
            maker.describe = [describe](const void* options) {
                return describe(*static_cast<const Options*>(options));
            };
        register_part<Options>("data", std::move(name), std::move(about), std::move(keys), std::move(maker));
    }
};

// An unknown name, bad numbers or missing files are UsageErrors, files that do not hold what they should are IoErrors.
std::shared_ptr<const Dataset> open_data(const Part& data, Split split, std::uint64_t seed = 0);
// What the data look like where that can be told without reading the samples.
std::optional<DataInfo> describe_data(const Part& data);

}  // namespace invar
