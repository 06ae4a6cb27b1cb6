// Remedy: the one change of a run's configuration that mends a step which failed. Recovery: how a run went on with one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "invar/config/config.h"

namespace invar {

struct Remedy {
    enum class Kind : std::uint8_t {
        none,
        precision,
        precision_overrides,
        init_scale,
        scaling,
        learning_rate,
        gradient_clip
    };
    Kind kind = Kind::none;
    std::string precision = {};         // of the whole run: its canonical name
    PrecisionOverrides overrides = {};  // of single modules: all that the run should have
    double value = 0.0;                 // the loss scale to begin with, the learning rate, or the norm to clip at

    static Remedy of_precision(std::string name) { return {Kind::precision, std::move(name)}; }
    static Remedy of_overrides(PrecisionOverrides all) { return {Kind::precision_overrides, {}, std::move(all)}; }
    static Remedy of_init_scale(double scale) { return {Kind::init_scale, {}, {}, scale}; }
    static Remedy of_scaling() { return {Kind::scaling}; }
    static Remedy of_learning_rate(double rate) { return {Kind::learning_rate, {}, {}, rate}; }
    static Remedy of_gradient_clip(double norm) { return {Kind::gradient_clip, {}, {}, norm}; }

    explicit operator bool() const { return kind != Kind::none; }
    bool operator==(const Remedy&) const = default;

    // As it stands on a command line and in the files of a run, "scaler.init_scale=1024"; "" where there is none.
    std::string str() const;
    // What str() has made; throws Error for anything else.
    static Remedy parse(const std::string& text);
};

// A run that had become unstable and was set right: it went back to an earlier step, and on in a safer precision or
// with a remedy for the step that failed.
struct Recovery {
    std::int64_t failed_at = 0;  // the step that showed it
    std::int64_t back_to = 0;    // the step of the checkpoint
    std::string from, to;        // precisions
    std::string reason;
    Remedy remedy = {};  // none where the precision alone has changed
    // "16-mixed with trainer.precision_overrides={fc1: 32-true}"
    std::string continues_in() const { return remedy ? to + " with " + remedy.str() : to; }
};

// As checkpoints hold it.
nlohmann::json to_json(const Recovery& recovery);
Recovery recovery_from_json(const nlohmann::json& json);

}  // namespace invar
