// One tensor over many steps: how its norm, its extremes and what smaller formats would lose of it change from one
// checkpoint of a run to the next, whoever saved them.
#pragma once

#include <optional>

#include "invar/formats/inspect.h"

namespace invar {

struct TensorAtStep {
    std::filesystem::path file;
    std::optional<std::int64_t> step;                // by the name of the file or of its folder
    InspectedTensor tensor;                          // its name as that file has it
    double norm = 0.0, least = 0.0, greatest = 0.0;  // of finite values; 0 where there is none
};

// The files that hold a run's weights, by their steps: of one of our runs, of a folder with Hugging Face's
// checkpoint-N, or of any folder of such files. A file stands for itself. Throws UsageError where there are none.
std::vector<std::filesystem::path> weight_files_of(const std::filesystem::path& path);

// `name` is that of a tensor, or its end where that is clear: conv1.weight for model.conv1.weight. In the order of
// steps where all files have one, else as they are given. Throws UsageError where a file has no such tensor.
std::vector<TensorAtStep> follow_tensor(const std::vector<std::filesystem::path>& paths, const std::string& name,
                                        const std::vector<Dtype>& formats);

}  // namespace invar
