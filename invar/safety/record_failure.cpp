#include "invar/safety/record_failure.h"

#include <fmt/format.h>

namespace invar {

Finding record_failure(const std::filesystem::path& run, Setup& setup, std::span<const Batch> group,
                       const Progress& progress, RngState rng, double scale, const std::string& config_yaml) {
    save_failure(failure_folder(run), setup, group, progress, rng, scale, config_yaml);
    return find_first_bad(setup, group, rng, scale);
}

std::string one_line(const Finding& f) {
    if (!f) return "the step is finite when it is replayed";
    std::string text =
        fmt::format("{}, gave {} in {}; the {} {} to blame", f.where(), f.result.nans > 0 ? "NaN" : "Inf",
                    name_of(f.dtype), name_of(f.blame), f.blame == Blame::weights ? "are" : "is");
    if (!f.remedy.empty()) text += fmt::format("; try {}", f.remedy);
    return text;
}

}  // namespace invar
