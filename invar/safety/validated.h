// Which configurations have been validated on this account, and with what verdict: a file of JSON lines that only
// grows. A configuration is known by model, data, precision with all that keeps it stable (level, overrides, scaler,
// clipping, accumulation), and the version of Invar; not by seed, learning rate, length, threads or where the data lie.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "invar/safety/validate.h"

namespace invar {

struct Remembered {
    Verdict verdict = Verdict::fail;
    std::string date;    // "2025-10-14 12:00 UTC"
    std::string report;  // where it was written
};

// $XDG_STATE_HOME/invar/validated.jsonl, or ~/.local/state/invar/validated.jsonl; empty where neither is set.
std::filesystem::path validated_file();

// 16 hexadecimal digits.
std::string validation_key(const Config& config);

// Whether it matters: FP32 needs no validation.
bool needs_validation(const Config& config);

// One line for each candidate that was compared. Several processes may write at once; a line torn by a crash spoils
// itself alone. False where there is nothing worth remembering: the baseline failed, or no run was trained for a whole
// epoch. Throws IoError.
bool remember(const std::filesystem::path& file, const Validation& validation, const std::filesystem::path& report);
// The last verdict on this configuration. Lines that cannot be read are passed over; a missing file holds nothing.
std::optional<Remembered> recall(const std::filesystem::path& file, const Config& config);

// One line on what is known, "" where the configuration may be trusted; `again` is the command that would validate it.
std::string validation_warning(const std::filesystem::path& file, const Config& config, const std::string& again);

}  // namespace invar
