#include "invar/train/precision_plan.h"

#include <algorithm>

namespace invar {

namespace {

using Kind = Precision::Kind;

// FP16 ends at 65504, BF16 has FP32's range with few digits, TF32 has FP16's digits.
int safety_of(Kind kind) {
    switch (kind) {
        case Kind::fp16_true:
            return 0;
        case Kind::fp16_mixed:
        case Kind::bf16_true:
            return 1;
        case Kind::bf16_mixed:
        case Kind::tf32:
            return 2;
        case Kind::fp32:
            break;
    }
    return 3;
}

// At the configured level, except O3: that means 16 bits throughout, which a safer precision leaves.
Precision safer_precision(const TrainerConfig& config, const std::string& name) {
    return config.amp_level == "O3" ? Precision::parse(name) : config.at_level(name);
}

}  // namespace

PrecisionPlan::PrecisionPlan(const TrainerConfig& config, std::int64_t steps_per_epoch, std::int64_t first_epoch_at)
    : config_(config) {
    changes_.push_back({0, config.resolved_precision()});
    for (const PrecisionChange& change : config.precision_schedule)
        changes_.push_back({change.is_epoch ? first_epoch_at + change.at * steps_per_epoch : change.at,
                            config.at_level(change.precision)});
    const auto earlier = [](const Change& a, const Change& b) { return a.step < b.step; };
    std::stable_sort(changes_.begin(), changes_.end(), earlier);
}

Precision PrecisionPlan::at(std::int64_t done) const {
    Precision wanted = changes_.front().precision;
    for (const Change& change : changes_)
        if (change.step <= done) wanted = change.precision;
    return held_ && safety_of(wanted.kind) < safety_of(held_->kind) ? *held_ : wanted;
}

std::vector<std::int64_t> PrecisionPlan::changes() const {
    std::vector<std::int64_t> steps;
    for (const Change& change : changes_)
        if (steps.empty() || steps.back() != change.step) steps.push_back(change.step);
    return steps;
}

void PrecisionPlan::hold_at(const std::string& precision) {
    held_ = safer_precision(config_, precision);
}

std::optional<Precision> PrecisionPlan::safer_than(const Precision& precision) const {
    switch (precision.kind) {
        case Kind::fp16_true:
            return safer_precision(config_, "16-mixed");
        case Kind::fp16_mixed:
        case Kind::bf16_true:
            return safer_precision(config_, "bf16-mixed");
        case Kind::bf16_mixed:
        case Kind::tf32:
            return safer_precision(config_, "32-true");
        case Kind::fp32:
            break;
    }
    return std::nullopt;
}

}  // namespace invar
