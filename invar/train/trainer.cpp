#include "invar/train/trainer.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/train/step.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// After so many steps in a row without one finite gradient nothing will get better by itself.
constexpr std::int64_t kHopeless = 100;

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
    : config_(std::move(config)), config_yaml_(to_yaml(config_)), setup_(config_), reports_(setup_.device) {
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
    step_.emplace(setup_, config_.trainer.cuda_graph, reports_.slots(),
                  [&](const std::string& note) { observer.noted(note); });
    if (validation_due()) validate(observer);  // resumed from a checkpoint whose validation may not have been reached

    while (progress_.step < setup_.total_steps && !stop_requested_) train_epoch(observer);

    hear_out(observer);
    const bool finished = progress_.step >= setup_.total_steps;
    summary_.memory = memory_stats(setup_.device);
    save(observer);
    if (finished) validate(observer);
    summary_.status = finished ? "finished" : "interrupted";
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    summary_.final_scale = setup_.scaler->get_scale();
    summary_.train_seconds = clock_.seconds();
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
        clock_.start();
        std::vector<Batch> group;
        std::int64_t samples = 0;
        while (std::int64_t(group.size()) < setup_.accumulate) {
            std::optional<Batch> batch = data.next();
            if (!batch) break;
            samples += batch->size;
            group.push_back(std::move(*batch));
        }
        if (group.empty()) break;

        if (given_.size() == reports_.room()) hear(reports_.wait(), observer);
        (*step_)(group);
        ++progress_.step;
        progress_.batch = data.position();
        given_.push_back({progress_.step, progress_.epoch, samples});
        observer.ticked(progress_, setup_.total_steps);
        while (const std::optional<StepReport> report = reports_.poll()) hear(*report, observer);

        const bool epoch_ended = progress_.batch >= data.batches_per_epoch();
        if (epoch_ended) ++progress_.epoch, progress_.batch = 0;
        const std::int64_t every = config_.trainer.checkpoint_every_n_steps;
        if (epoch_ended || (every > 0 && progress_.step % every == 0)) save(observer);
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

// What the oldest step that was still out has to say: on the CPU at once, on a GPU some steps later.
void Trainer::hear(const StepReport& report, Observer& observer) {
    const Given given = given_.front();
    given_.pop_front();
    samples_ += given.samples;
    trained_samples_ += given.samples;
    const StepState& step = report.step;
    const std::int64_t every = config_.trainer.log_every_n_steps;
    const bool last = given.step == setup_.total_steps;
    // A skipped step always has its line: nobody should have to guess which ones did not count.
    if (!last && given.step != 1 && !step.skip && (every <= 0 || given.step % every != 0)) return;
    const double now = clock_.seconds();
    StepMetrics m;
    m.step = given.step;
    m.total_steps = setup_.total_steps;
    m.epoch = given.epoch;
    m.loss = report.loss;
    m.lr = double(setup_.optimizer->groups()[0].lr) * double(step.lr_factor);
    m.grad_norm = step.grad_norm;
    m.scale = report.scale.scale;
    m.growth_tracker = report.scale.growth_tracker;
    m.skipped_now = step.skip;
    m.skipped = step.skipped;
    m.samples_per_s = now > logged_at_ ? double(samples_) / (now - logged_at_) : 0.0;
    m.memory = memory_stats(setup_.device);
    logged_at_ = now, samples_ = 0;
    folder_->log(m);
    observer.stepped(m);
    summary_.train_loss = m.loss;
    if (std::isfinite(m.grad_norm)) summary_.max_grad_norm = std::max(summary_.max_grad_norm, m.grad_norm);
    summary_.all_finite = summary_.all_finite && std::isfinite(m.loss);
    if (m.skipped_now)
        observer.noted(fmt::format("step {} skipped: its gradients overflowed; loss scale now {:g}", m.step, m.scale));
    if (step.skipped_in_a_row >= kHopeless) give_up(given.step, report);
}

// Until every step has been heard of: before anything that shows or keeps where the run stands.
void Trainer::hear_out(Observer& observer) {
    while (!given_.empty()) hear(reports_.wait(), observer);
    clock_.stop();
}

void Trainer::give_up(std::int64_t step, const StepReport& report) {
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
        step, report.step.skipped_in_a_row, report.loss, report.scale.scale, culprit);
}

void Trainer::validate(Observer& observer) {
    hear_out(observer);
    const Evaluation result = evaluate(*setup_.model, *setup_.test_data, setup_.precision);
    summary_.val_loss = result.loss;
    summary_.val_accuracy = result.accuracy;
    ValidationMetrics m{progress_.step, progress_.epoch, result.loss, result.accuracy};
    folder_->log(m);
    observer.validated(m);
}

void Trainer::save(Observer& observer) {
    if (saved_at_ == progress_.step) return;
    hear_out(observer);
    const PurposeScope purpose(Purpose::workspace);  // the copies that go into the file
    folder_->checkpoints().save(progress_.step, take_snapshot(setup_, progress_, config_yaml_));
    saved_at_ = progress_.step;
}

}  // namespace invar
