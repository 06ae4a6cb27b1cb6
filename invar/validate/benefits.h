// What a lower precision gains over FP32, from measurements alone: a validation remembers both, and a run that is
// trained on the same machine is held against them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "invar/train/setup.h"
#include "invar/train/summary.h"
#include "invar/validate/comparison.h"

namespace invar {

// Of a validation whose times nobody disturbed.
struct Benefits {
    double samples_per_s = 0.0, fp32_samples_per_s = 0.0;
    double peak_bytes = 0.0, fp32_peak_bytes = 0.0;
    std::string date;  // "2025-10-14 12:00 UTC"

    double speed_up() const { return samples_per_s / fp32_samples_per_s; }
    double memory_ratio() const { return peak_bytes / fp32_peak_bytes; }
};

// The machine, what of it computes (as Validation::device says it; "" is the CPU), and with how many others: times are
// worth something on the same one only.
std::string machine_of(const std::string& device, int threads, int ranks);
std::string machine_of(const Setup& setup);

// The last that a validation of this configuration, of whatever length, measured on this machine.
std::optional<Benefits> recall_benefits(const std::filesystem::path& file, const Config& config,
                                        const std::string& machine);
// Nothing where the times of one of them were disturbed, or something was not measured.
std::optional<Benefits> benefits_of(const Arm& baseline, const Arm& arm);

// "Training speedup: 1.85x" and "Memory savings: 31%", for a run that begins.
std::vector<std::string> expected_benefits(const Benefits& known);
// The same of a run that has finished, each with what was expected: "Training speedup: 1.80x, expected 1.85x". Times
// of a run that others kept waiting are left out; empty where it changed its precision.
std::vector<std::string> measured_benefits(const Benefits& known, const RunSummary& summary);

}  // namespace invar
