// The part of Trainer that calls callbacks, and what it does at their request.
#include "invar/core/error.h"
#include "invar/train/trainer.h"

namespace invar {

void Trainer::add(std::shared_ptr<Callback> callback) {
    for (const auto& other : callbacks_)
        check<UsageError>(other->name() != callback->name(),
                          "two callbacks of a run are called '{}', under which their state is kept; rename one",
                          callback->name());
    callback->setup(setup_);
    if (callback_states_.contains(callback->name())) callback->load_state_dict(callback_states_[callback->name()]);
    callbacks_.push_back(std::move(callback));
}

void Trainer::stop(const std::string& reason) {
    if (summary_.stopped_early.empty()) summary_.stopped_early = reason.empty() ? "a callback asked for it" : reason;
}

double Trainer::learning_rate() const {
    return setup_.optimizer->groups().at(0).lr;
}

// By a factor on what the configuration says, so that a resumed run, which knows the factor, gets to the same bits.
void Trainer::set_learning_rate(double rate) {
    const double base = base_rates_.at(0);
    check<UsageError>(rate >= 0 && base > 0, "a callback cannot change the learning rate from {:g} to {:g}", base,
                      rate);
    scale_learning_rates(rate / base);
}

void Trainer::scale_learning_rates(double factor) {
    lr_factor_ = factor;
    std::vector<OptimizerSpec>& groups = setup_.optimizer->groups();
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].lr = base_rates_[i] * factor;
}

void Trainer::call_step_callbacks() {
    for (const auto& callback : callbacks_) {
        const std::int64_t every = callback->every_n_steps();
        if (every <= 0 || progress_.step % every != 0) continue;
        drain();
        if (unstable_) return;
        callback->on_step_end(*this, last_reported_);
    }
}

void Trainer::after_step(bool validation) {
    if (after_step_done_ == progress_.step) return;
    if (validation) validate();
    if (unstable_) return;
    if (progress_.batch == 0)
        for (const auto& callback : callbacks_) callback->on_epoch_end(*this);
    after_step_done_ = progress_.step;
    if (save_requested_) save();
    save_requested_ = false;
    update_best();
}

void Trainer::start_callbacks() {
    save_requested_ = false;
    for (const auto& callback : callbacks_) callback->on_train_start(*this);
    summary_.best_checkpoint.reset();
    for (const auto& callback : callbacks_) callback->add_to(summary_);
}

// A file that summary.json names is there, whenever the run is killed: it is written before the summary names it, and
// deleted after the summary names another.
void Trainer::update_best() {
    const std::optional<BestCheckpoint> before = summary_.best_checkpoint;
    for (const auto& callback : callbacks_) callback->add_to(summary_);
    if (callbacks_.empty() || summary_.best_checkpoint == before) return;
    finish_save();
    write_summary("running");
    folder_->checkpoints().prune(progress_.step, kept_checkpoints());
}

CheckpointFolder::StepSet Trainer::kept_checkpoints() const {
    CheckpointFolder::StepSet kept;
    for (const auto& callback : callbacks_)
        for (const std::int64_t step : callback->kept_checkpoints()) kept.insert(step);
    if (summary_.best_checkpoint) kept.insert(summary_.best_checkpoint->step);
    // Until it is known whether the run gets over it, the last one from before.
    if (const std::optional<std::int64_t> good = stability_.good_until()) {
        std::int64_t before = -1;
        for (const std::int64_t step : folder_->checkpoints().steps())
            if (step <= *good) before = step;
        kept.insert(before);
    }
    return kept;
}

// At the end of a run: what is left are the best ones, where there are any.
void Trainer::keep_only_best() {
    const CheckpointFolder::StepSet kept = kept_checkpoints();
    if (kept.empty() || !summary_.best_checkpoint) return;
    for (const std::int64_t step : folder_->checkpoints().steps())
        if (!kept.contains(step)) {
            std::error_code ignored;
            std::filesystem::remove(folder_->checkpoints().path_of(step), ignored);
        }
}

// Somebody else may have deleted or damaged it under the run.
void Trainer::check_best() {
    if (!summary_.best_checkpoint) return;
    try {
        verify_checkpoint(folder_->checkpoints().path_of(summary_.best_checkpoint->step));
    } catch (const Error& error) {
        observer_->noted(fmt::format("the best checkpoint is of no use, and no other is deleted: {}", error.what()));
        summary_.best_checkpoint.reset();
    }
}

ResumePoint Trainer::resume_point() const {
    return {progress_.step, after_step_done_ == progress_.step, logged_steps_};
}

}  // namespace invar
