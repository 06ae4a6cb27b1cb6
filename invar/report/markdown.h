// The Markdown report of a validation: results, a checklist decided by measurements, the verdict, the way back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/safety/validate.h"

namespace invar {

// What the report says of the run's surroundings.
struct ReportContext {
    std::string config;                  // CONFIG_OR_EXPERIMENT as given; "" for the defaults
    std::vector<std::string> overrides;  // key=value, as given
    std::string machine;                 // "AMD EPYC 7B13, 2 threads, AVX2"
    std::string date;                    // "2025-10-14 12:00 UTC"
};
// The machine and the moment of the call.
ReportContext report_context(std::string config, std::vector<std::string> overrides);

std::string validation_report(const Validation& validation, const ReportContext& context);
// Writes it, whole or not at all, as report.md in the validation's folder; returns its path.
std::filesystem::path write_report(const Validation& validation, const ReportContext& context);

}  // namespace invar
