// Which configurations have been validated on this account, and with what verdict: a file of JSON lines that only
// grows. A configuration is known by model, data, precision with all that keeps it stable (level, overrides, scaler,
// clipping, accumulation), and the version of Invar; not by seed, learning rate, threads or where the data lie.
// A validation counts for runs that are no longer than those it was made of: one of 300 batches an epoch, or of one
// epoch, says nothing of what comes after them.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "invar/validate/validate.h"

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

// One line for each candidate that was compared. Several processes may write at once; a line torn by a crash spoils
// itself alone. False where there is nothing to remember: the verdict is INVALID, or there is no file to remember it
// in. Throws IoError.
bool remember(const std::filesystem::path& file, const Validation& validation, const std::filesystem::path& report);
// The last verdict that counts for this configuration and its length. Lines that cannot be read are passed over; a
// missing file holds nothing.
std::optional<Remembered> recall(const std::filesystem::path& file, const Config& config);

// Calls it with each line about this configuration, in order, of validations of whatever length.
void for_each_remembered(const std::filesystem::path& file, const Config& config,
                         const std::function<void(const nlohmann::json&)>& call);

// The settings that make the runs shorter than the data and the epochs would: "trainer.max_steps=100". "" where none
// do.
std::string limits_text(const TrainerConfig& trainer);

// The words after `invar validate` and the configuration that make a validation which counts for this run, with the
// plug-ins that it needs.
std::vector<std::string> validating_words(const Config& config);

// One line on what is known, "" where the configuration may be trusted; `again` is the command that would validate it.
std::string validation_warning(const std::filesystem::path& file, const Config& config, const std::string& again);

}  // namespace invar
