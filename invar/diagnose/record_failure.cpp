#include "invar/diagnose/record_failure.h"

#include <fmt/format.h>

#include "invar/core/shell.h"
#include "invar/diagnose/find_first_bad.h"

namespace invar {

Finding record_failure(Setup& setup, const FailedStep& step) {
    save_failure(failure_folder(step.run), setup, step.group, step.progress(), step.rng(), step.scale(),
                 to_yaml(step.config));
    return find_first_bad(setup, step.group, step.rng(), step.scale());
}

Explanation explain(Setup& setup, const FailedStep& step) {
    const Finding finding = record_failure(setup, step);
    Explanation why;
    why.command = program_name() + " diagnose " + shell_word(step.run.string());
    if (finding) why.cause = one_line(finding), why.remedy = finding.remedy, why.verified = finding.verified;
    return why;
}

std::string one_line(const Finding& f) {
    if (!f) return "the step is finite when it is replayed";
    return fmt::format("{}, gave {} in {}; the {} {} to blame", f.where(), f.result.nans > 0 ? "NaN" : "Inf",
                       name_of(f.dtype), name_of(f.blame), f.blame == Blame::weights ? "are" : "is");
}

}  // namespace invar
