// Which precisions can be judged against FP32 at all: everything that can be refused before the first run.
#pragma once

#include "invar/validate/validate.h"

namespace invar {

inline constexpr const char* kBaseline = "32-true";

// Fills in the candidates where none are named, calls each by its canonical name, once, and throws UsageError where
// something asked for cannot be validated.
void check_options(ValidateOptions& options);

// The metric that is meant, by the task's own word, with what is known of it.
void choose_metric(Validation& validation);

}  // namespace invar
