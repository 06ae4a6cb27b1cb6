#include "invar/train/trainer.h"

#include <chrono>
#include <cmath>

#include "invar/core/error.h"
#include "invar/train/step.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// After so many steps in a row without one finite gradient nothing will get better by itself.
constexpr std::int64_t kHopeless = 100;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

JsonLine summary_line(const Config& config, const RunSummary& s, const Device& device) {
    JsonLine line;
    line.add("exp_name", config.exp_name)
        .add("status", s.status)
        .add("model", config.model.name)
        .add("data", config.data.name);
    line.add("precision", s.precision).add("device", device.str()).add("seed", config.seed);
    line.add("epochs", s.epochs)
        .add("steps", s.steps)
        .add("skipped_steps", s.skipped)
        .add("final_scale", s.final_scale);
    line.add("train_loss", s.train_loss).add("val_loss", s.val_loss).add("val_accuracy", s.val_accuracy);
    line.add("train_seconds", s.train_seconds)
        .add("samples_per_s", s.samples_per_s)
        .add("max_grad_norm", s.max_grad_norm);
    line.add("all_finite", s.all_finite).add("peak_bytes", memory_line(s.memory.peak, s.memory.peak_total));
    return line;
}

}  // namespace

Trainer::Trainer(Config config, std::optional<fs::path> resume)
    : config_(std::move(config)), config_yaml_(to_yaml(config_)), setup_(config_) {
    if (resume) resume_from(*resume);
}

void Trainer::resume_from(const fs::path& folder) {
    const LatestCheckpoint latest =
        CheckpointFolder(RunFolder::checkpoints_of(folder), int(config_.trainer.keep_checkpoints)).latest();
    notes_ = latest.notes;
    if (latest) {
        try {
            progress_ = restore_snapshot(setup_, load_checkpoint(latest.path));
        } catch (const Error& error) {
            fail("{}: {}", latest.path.string(), error.what());
        }
        saved_at_ = progress_.step;
        notes_.push_back(fmt::format("resuming at step {} from {}", progress_.step, latest.path.string()));
    } else {
        notes_.push_back(fmt::format("{} holds no checkpoint yet; starting from the beginning", folder.string()));
    }
    folder_.emplace(RunFolder::reopen(folder, config_, progress_.step));
}

RunSummary Trainer::run(Observer& observer) {
    stop_requested_ = false;
    if (!folder_) folder_.emplace(RunFolder::create(config_));
    summary_.folder = folder_->path();
    summary_.precision = setup_.precision.name();
    reset_peak_memory(setup_.device);
    observer.started(setup_, *folder_, progress_);
    for (const std::string& note : notes_) observer.noted(note);
    if (validation_due()) validate(observer);  // resumed from a checkpoint whose validation may not have been reached

    while (progress_.step < setup_.total_steps && !stop_requested_) train_epoch(observer);

    const bool finished = progress_.step >= setup_.total_steps;
    summary_.memory = memory_stats(setup_.device);
    save();
    if (finished) validate(observer);
    summary_.status = finished ? "finished" : "interrupted";
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    summary_.final_scale = setup_.scaler->get_scale();
    summary_.samples_per_s = summary_.train_seconds > 0 ? double(trained_samples_) / summary_.train_seconds : 0.0;
    summary_.all_finite =
        summary_.all_finite && kernels_for(setup_.device).all_finite(setup_.optimizer->store().weights().view());
    folder_->write_summary(summary_line(config_, summary_, setup_.device));
    folder_->flush();
    return summary_;
}

void Trainer::train_epoch(Observer& observer) {
    Loader& data = *setup_.train_data;
    setup_.model->train();
    data.start_epoch(progress_.epoch, progress_.batch);
    while (progress_.step < setup_.total_steps && !stop_requested_) {
        std::vector<Batch> group;
        while (std::int64_t(group.size()) < setup_.accumulate) {
            std::optional<Batch> batch = data.next();
            if (!batch) break;
            group.push_back(std::move(*batch));
        }
        if (group.empty()) break;

        const auto start = std::chrono::steady_clock::now();
        const Tensor loss =
            training_step(*setup_.model, *setup_.optimizer, *setup_.scaler, setup_.precision, setup_.clip, group);
        const double taken = seconds_since(start);

        seconds_ += taken;
        summary_.train_seconds += taken;
        for (const Batch& batch : group) samples_ += batch.size, trained_samples_ += batch.size;
        ++progress_.step;
        progress_.batch = data.position();
        observer.ticked(progress_, setup_.total_steps);
        after_step(loss, observer);
        const bool epoch_ended = progress_.batch >= data.batches_per_epoch();
        if (epoch_ended) ++progress_.epoch, progress_.batch = 0;
        const std::int64_t every = config_.trainer.checkpoint_every_n_steps;
        if (epoch_ended || (every > 0 && progress_.step % every == 0)) save();
        if (validation_due()) validate(observer);
        if (epoch_ended) return;
    }
}

// Where the run stands says it all, so that a resumed run validates where the other one did. The last one is run()'s.
bool Trainer::validation_due() const {
    if (progress_.step == 0 || progress_.step >= setup_.total_steps) return false;
    if (progress_.batch == 0) return true;
    const std::int64_t every = config_.trainer.val_check_interval.among(setup_.steps_per_epoch);
    return every > 0 && (progress_.batch + setup_.accumulate - 1) / setup_.accumulate % every == 0;
}

void Trainer::after_step(const Tensor& loss, Observer& observer) {
    const std::int64_t every = config_.trainer.log_every_n_steps;
    const bool last = progress_.step == setup_.total_steps;
    const auto start = std::chrono::steady_clock::now();
    const StepState step = setup_.optimizer->state();  // waits until the device has done what it was given
    const double waited = seconds_since(start);
    seconds_ += waited;
    summary_.train_seconds += waited;
    // A skipped step always has its line: nobody should have to guess which ones did not count.
    if (!last && progress_.step != 1 && !step.skip && (every <= 0 || progress_.step % every != 0)) return;
    const ScaleState scale = setup_.scaler->state();
    StepMetrics m;
    m.step = progress_.step;
    m.total_steps = setup_.total_steps;
    m.epoch = progress_.epoch;
    m.loss = loss.item();
    m.lr = double(setup_.optimizer->groups()[0].lr) * double(step.lr_factor);
    m.grad_norm = step.grad_norm;
    m.scale = setup_.scaler->get_scale();
    m.growth_tracker = scale.growth_tracker;
    m.skipped_now = step.skip;
    m.skipped = step.skipped;
    m.samples_per_s = seconds_ > 0 ? double(samples_) / seconds_ : 0.0;
    m.memory = memory_stats(setup_.device);
    seconds_ = 0.0, samples_ = 0;
    folder_->log(m);
    observer.stepped(m);
    summary_.train_loss = m.loss;
    if (std::isfinite(m.grad_norm)) summary_.max_grad_norm = std::max(summary_.max_grad_norm, m.grad_norm);
    summary_.all_finite = summary_.all_finite && std::isfinite(m.loss);
    if (m.skipped_now)
        observer.noted(fmt::format("step {} skipped: its gradients overflowed; loss scale now {:g}", m.step, m.scale));
    if (step.skipped_in_a_row >= kHopeless) give_up(step, m.loss);
}

void Trainer::give_up(const StepState& state, double loss) {
    std::string culprit = "none";
    for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
        if (kernels_for(setup_.device).all_finite(parameter->value.grad().view())) continue;
        culprit = parameter->name;
        break;
    }
    folder_->flush();
    fail(
        "training stopped at step {}: {} steps in a row had NaN or Inf gradients (loss {:g}, scale {:g}, first bad "
        "gradient: {}); the "
        "weights are those of the last good step. Try trainer.precision=bf16-mixed, a lower optimizer.lr or "
        "trainer.gradient_clip_val=1",
        progress_.step, state.skipped_in_a_row, loss, setup_.scaler->get_scale(), culprit);
}

void Trainer::validate(Observer& observer) {
    const Evaluation result = evaluate(*setup_.model, *setup_.test_data, setup_.precision);
    summary_.val_loss = result.loss;
    summary_.val_accuracy = result.accuracy;
    ValidationMetrics m{progress_.step, progress_.epoch, result.loss, result.accuracy};
    folder_->log(m);
    observer.validated(m);
}

void Trainer::save() {
    if (saved_at_ == progress_.step) return;
    const PurposeScope purpose(Purpose::workspace);  // the copies that go into the file
    folder_->checkpoints().save(progress_.step, take_snapshot(setup_, progress_, config_yaml_));
    saved_at_ = progress_.step;
}

}  // namespace invar
