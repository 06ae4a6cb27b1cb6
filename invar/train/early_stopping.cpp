#include "invar/train/early_stopping.h"

#include <fmt/format.h>

#include <cmath>

namespace invar {

void EarlyStopping::setup(const Setup& setup) {
    metric_.emplace("early_stopping", options_.monitor, options_.mode, setup);
}

// A run that was stopped and is resumed has nothing to wait for, unless patience has become larger.
void EarlyStopping::on_train_start(RunHandle& run) {
    stop_where_due(run);
}

void EarlyStopping::on_validation_end(RunHandle& run, const ValidationMetrics& validation) {
    const double value = metric_->in(validation);
    if (options_.check_finite && !std::isfinite(value))
        return run.stop(fmt::format("{} is {} at step {}", options_.monitor, metric_->str(value), validation.step));
    if (metric_->improves(value, best_, options_.min_delta)) {
        best_ = value, best_step_ = validation.step, wait_ = 0;
        return;
    }
    ++wait_;
    stop_where_due(run);
}

void EarlyStopping::stop_where_due(RunHandle& run) const {
    if (wait_ < options_.patience) return;
    run.stop(fmt::format("{} has not improved in {} validation{} since step {}, where it was {}", options_.monitor,
                         wait_, wait_ == 1 ? "" : "s", best_step_, metric_->str(best_)));
}

nlohmann::json EarlyStopping::state_dict() const {
    return {{"best", best_}, {"best_step", best_step_}, {"wait", wait_}};
}

void EarlyStopping::load_state_dict(const nlohmann::json& state) {
    best_ = state.at("best"), best_step_ = state.at("best_step"), wait_ = state.at("wait");
}

}  // namespace invar
