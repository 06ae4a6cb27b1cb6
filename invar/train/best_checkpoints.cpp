#include "invar/train/best_checkpoints.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/train/summary.h"

namespace invar {

void BestCheckpoints::setup(const Setup& setup) {
    metric_.emplace("checkpoint", options_.monitor, options_.mode, setup);
}

// One that was replaced by a better one, just before the run was killed, is gone by now; the better one is found again
// by the same validation.
void BestCheckpoints::on_train_start(RunHandle& run) {
    const std::vector<std::int64_t> there = run.checkpoints().steps();
    std::erase_if(kept_, [&](const Kept& kept) { return !std::ranges::binary_search(there, kept.step); });
    std::erase_if(kept_, [&](const Kept& kept) {
        try {
            verify_checkpoint(run.checkpoints().path_of(kept.step));
            return false;
        } catch (const Error& error) {
            run.note(fmt::format("one of the best checkpoints no longer counts: {}", error.what()));
            return true;
        }
    });
}

void BestCheckpoints::on_validation_end(RunHandle& run, const ValidationMetrics& validation) {
    const double value = metric_->in(validation);
    if (std::isnan(value)) return;
    std::erase_if(kept_, [&](const Kept& kept) { return kept.step == validation.step; });
    const auto worse = [&](const Kept& kept) { return metric_->improves(value, kept.value); };
    const auto place = std::ranges::find_if(kept_, worse);
    const bool unlimited = options_.save_top_k < 0;
    if (!unlimited && place - kept_.begin() >= options_.save_top_k) return;
    kept_.insert(place, {validation.step, value});
    if (!unlimited && std::int64_t(kept_.size()) > options_.save_top_k) kept_.pop_back();
    run.save_checkpoint();
}

nlohmann::json BestCheckpoints::state_dict() const {
    nlohmann::json kept = nlohmann::json::array();
    for (const Kept& each : kept_) kept.push_back({each.step, each.value});
    return {{"kept", kept}};
}

void BestCheckpoints::load_state_dict(const nlohmann::json& state) {
    kept_.clear();
    for (const nlohmann::json& each : state.at("kept")) kept_.push_back({each.at(0), each.at(1)});
}

std::vector<std::int64_t> BestCheckpoints::kept_checkpoints() const {
    std::vector<std::int64_t> steps;
    for (const Kept& kept : kept_) steps.push_back(kept.step);
    return steps;
}

void BestCheckpoints::add_to(RunSummary& summary) const {
    if (!kept_.empty()) summary.best_checkpoint = BestCheckpoint{kept_[0].step, options_.monitor, kept_[0].value};
}

}  // namespace invar
