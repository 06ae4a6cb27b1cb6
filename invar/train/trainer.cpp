#include "invar/train/trainer.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/core/host_memory.h"
#include "invar/image/encode.h"
#include "invar/kernels/flops.h"
#include "invar/kernels/gpu_utilization.h"
#include "invar/tasks/registry.h"
#include "invar/train/best_checkpoints.h"
#include "invar/train/early_stopping.h"
#include "invar/train/low_precision.h"
#include "invar/train/review.h"
#include "invar/train/step.h"
#include "invar/train/unreached.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// A run that goes on has its weights from a checkpoint; what it began with may be gone.
Config without_weights(Config config, bool resumes) {
    if (resumes) config.init_from.clear();
    return config;
}

// As plan_step clips it. A gradient that is not finite is not applied, and stays what it is.
double clipped_norm(double norm, const ClipSpec& clip) {
    return std::isfinite(norm) ? norm * std::min(1.0, double(clip.limit) / (norm + 1e-6)) : norm;
}

}  // namespace

Trainer::Trainer(Config config, std::optional<Resume> resume) : Trainer(make_task(config), config, std::move(resume)) {}

Trainer::Trainer(std::shared_ptr<const Task> task, Config config, std::optional<Resume> resume)
    : config_(std::move(config)),
      config_yaml_(to_yaml(config_)),
      setup_(std::move(task), without_weights(config_, resume.has_value())),
      in_flight_(setup_.device),
      monitor_(config_.monitor, setup_),
      stability_(config_.stability),
      plan_(config_.trainer, setup_.steps_per_epoch),
      recovery_(config_, setup_, plan_),
      writer_(*setup_.ranks) {
    summary_.precisions = {{0, computed_precision()}};
    for (const OptimizerSpec& group : setup_.optimizer->groups()) base_rates_.push_back(group.lr);
    if (!config_.early_stopping.monitor.empty()) add(std::make_shared<EarlyStopping>(config_.early_stopping));
    if (!config_.checkpoint.monitor.empty()) add(std::make_shared<BestCheckpoints>(config_.checkpoint));
    if (resume) resume_from(*resume);
    in_flight_.set_scale(setup_.scaler->get_scale());
}

RunSummary Trainer::fit() {
    Observer nobody;
    return fit(nobody);
}

RunSummary Trainer::fit(Observer& observer) {
    observer_ = &observer;
    stop_requested_ = false;
    if (summary_.nothing_left) {
        for (const std::string& note : notes_) observer.noted(note);
        return summary_;
    }
    const bool fresh = !folder_;
    Communicator& ranks = *setup_.ranks;
    if (fresh && ranks.leads()) folder_.emplace(RunFolder::create(config_));
    if (fresh && !ranks.alone()) {
        const std::string path = ranks.broadcast_text(folder_ ? folder_->path().string() : "");
        if (!folder_) folder_.emplace(RunFolder::of_another(path, config_));
    }
    try {
        return run(observer);
    } catch (const UnstableError&) {
        throw;
    } catch (const std::exception&) {
        // What a later step failed of is no reason to lose the checkpoint.
        saving_.reset();
        writer_.stop();
        if (fresh && progress_.step == 0) {  // what was asked for cannot be trained, and nothing has been
            folder_->discard();
            folder_.reset();
        }
        throw;
    }
}

RunSummary Trainer::run(Observer& observer) {
    summary_.folder = folder_->path();
    used_before_ = cpu_use();
    reset_peak_memory(setup_.device);
    speed_.emplace(setup_);
    check_shared_folder(*setup_.ranks, folder_->path());
    start_callbacks();
    write_summary("running");  // whatever it said before, it is not finished now
    if (setup_.ranks->leads())
        folder_->checkpoints().prune(progress_.step,
                                     kept_checkpoints());  // as a save that was killed may not have done
    observer.started(setup_, *folder_, progress_);
    for (const std::string& note : notes_) observer.noted(note);
    for (const std::string& note : unreached_settings(config_, setup_)) observer.noted(note);
    ReportSlots slots = in_flight_.slots();
    slots.halt = recovery_.halts();
    step_.emplace(setup_.device, step_function(setup_, slots),
                  RecordOptions{config_.trainer.cuda_graph, [&](const std::string& note) { observer.noted(note); }});
    if (recovery_.recovers() && progress_.step == 0) save();  // somewhere to go back to
    if (saved_at_ < 0 && progress_.step > 0) save();          // resumed from a file that lies elsewhere
    finish_save();                                            // or nothing is begun
    // Resumed from a checkpoint, whose validation may not have been reached.
    if (progress_.step > 0 && !ended()) after_step(validation_due());

    while (goes_on()) {
        train_epoch();
        if (unstable_ || !goes_on()) drain();
        if (unstable_) recover();
    }

    if (!summary_.stopped_early.empty())
        observer.noted(fmt::format("stopped early at step {}: {}", progress_.step, summary_.stopped_early));
    const bool finished = ended() || !summary_.stopped_early.empty();
    measure_memory();
    save();
    if (finished) after_step(true);
    finish_save();
    if (finished) check_best();
    if (finished) save_pictures();
    write_summary(finished ? "finished" : "interrupted");
    if (finished && !config_.checkpoint.save_last) keep_only_best();
    note_folder_changes();
    summary_.folder = folder_->path();
    return summary_;
}

void Trainer::train_epoch() {
    Loader& data = *setup_.train_data;
    setup_.model->train();
    const bool another_follows = (progress_.epoch + 1) * setup_.steps_per_epoch < setup_.total_steps;
    data.start_epoch(progress_.epoch, progress_.batch, another_follows);
    while (goes_on()) {
        follow_plan();
        if (unstable_) return;
        in_flight_.start_clock();
        const std::vector<Batch> group = setup_.next_group();
        if (group.empty()) break;

        if (in_flight_.full()) handle_report(in_flight_.wait());
        if (unstable_) return;
        in_flight_.add(progress_, group);
        setup_.ranks->set_step(progress_.step);
        if (stop_requested_) setup_.optimizer->ask_to_stop(std::max(1, stop_number_.load()));
        run_step(group);
        stop_agreed_ = setup_.optimizer->asked_to_stop();
        ++progress_.step;
        finish_save(false);
        monitor_.measure(progress_.step, progress_.epoch + 1, group);
        progress_.batch = data.position();
        observer_->step_launched(progress_, setup_.total_steps);
        for (std::size_t ready = reports_to_handle(); ready > 0 && !unstable_; --ready)
            handle_report(in_flight_.wait());
        if (unstable_) return;

        const bool epoch_ended = progress_.batch >= data.batches_per_epoch();
        if (epoch_ended) ++progress_.epoch, progress_.batch = 0;
        call_step_callbacks();
        const std::int64_t every = config_.trainer.checkpoint_every_n_steps;
        if (epoch_ended || save_requested_ || (every > 0 && progress_.step % every == 0)) save();
        if (!ended() && (epoch_ended || validation_due())) after_step(validation_due());
        if (epoch_ended) return;
    }
}

// A report of a GPU comes to one rank sooner than to another, and what they decide by it they decide after the same step.
// That of a CPU is there with the step.
std::size_t Trainer::reports_to_handle() const {
    return setup_.device.is_cpu() ? in_flight_.ready() : in_flight_.ready_everywhere(*setup_.ranks);
}

// The arithmetic of one step is counted, the first: a recording would count nothing.
void Trainer::run_step(const std::vector<Batch>& group) {
    if (!speed_->wants_flops()) return (void)(*step_)(group);
    const FlopCount flops;
    (*step_)(group);
    speed_->set_flops_per_sample(flops.count() / double(samples_of(group)));
}

// Changes the precision where the schedule says so. Just before a step, so that what is saved and validated after one
// belongs to the precision that it was made in.
void Trainer::follow_plan() {
    const Precision wanted = plan_.at(progress_.step);
    if (wanted == setup_.precision) return;
    drain();
    if (unstable_) return;
    observer_->noted(
        fmt::format("from step {} on in {} instead of {}", progress_.step + 1, wanted.name(), setup_.precision.name()));
    set_precision(wanted);
    in_flight_.set_scale(setup_.scaler->get_scale());
    if (const std::string now = computed_precision(); summary_.precisions.back().precision != now)
        summary_.precisions.push_back({progress_.step, now});
}

// A recording computes in the precision that it was made in, and may hold an optimizer that is replaced now.
void Trainer::set_precision(const Precision& precision) {
    if (step_) step_->forget();
    setup_.set_precision(precision);
}

// Where the run stands says it all, so that a resumed run validates where the other one did. The last one is fit()'s.
bool Trainer::validation_due() const {
    if (progress_.step == 0 || ended()) return false;
    if (progress_.batch == 0) return true;
    const std::int64_t every = config_.trainer.val_check_interval.among(setup_.steps_per_epoch);
    return every > 0 && (progress_.batch + setup_.accumulate - 1) / setup_.accumulate % every == 0;
}

// The oldest step in flight was reported: on the CPU at once, on a GPU some steps later.
void Trainer::handle_report(ReportedStep step) {
    StepReport& report = step.report;
    if (!setup_.scaler->enabled()) report.scale = {};
    if (std::isfinite(report.step.grad_norm))
        summary_.max_grad_norm = std::max(summary_.max_grad_norm, double(report.step.grad_norm));
    summary_.losses_finite = summary_.losses_finite && std::isfinite(report.loss);
    summary_.train_loss = report.loss;
    observer_->step_reported(step);
    log_step(step);
    in_flight_.set_scale(report.scale.scale);
    last_reported_ = step;
    log_findings(monitor_.handle_report(step));
    if (const std::optional<Instability> found = stability_.judge(step))
        handle_instability(*found);
    else
        for (const Instability::Kind kind : Instability::kKinds) monitor_.alerts().clear(name_of(kind));
}

void Trainer::log_step(const ReportedStep& reported) {
    const StepReport& report = reported.report;
    const StepState& step = report.step;
    const std::int64_t every = config_.trainer.log_every_n_steps;
    const std::int64_t number = reported.step();
    const bool due = number == 1 || number == setup_.total_steps || (every > 0 && number % every == 0);
    const bool scale_moved = reported.scale_before != double(report.scale.scale);
    // A skipped step always has its line, and a new scale: nobody should have to guess which ones did not count.
    if (!due && !step.skip && !scale_moved) return;
    StepMetrics m;
    m.step = number;
    m.total_steps = setup_.total_steps;
    m.epoch = reported.epoch();
    m.due = due;
    m.loss = report.loss;
    m.lr = setup_.optimizer->groups()[0].lr * step.lr_factor;
    m.grad_norm = step.grad_norm;
    if (setup_.clip.kind == ClipSpec::Kind::norm) m.grad_norm_clipped = clipped_norm(step.grad_norm, setup_.clip);
    m.precision = computed_precision();
    m.scale = report.scale.scale;
    m.growth_tracker = report.scale.growth_tracker;
    m.skipped_now = step.skip;
    m.skip_reason = skip_reason(report);
    m.skipped = step.skipped;
    m.samples_per_s = in_flight_.rate_until(reported);
    m.rate = speed_->at(m.samples_per_s);
    m.memory = memory_stats(setup_.device);
    m.host_bytes = host_memory_bytes();
    m.gpu_utilization = gpu_utilization(setup_.device);
    folder_->log(m);
    ++logged_steps_;
    note_full_log();
    observer_->step_logged(m);
}

void Trainer::drain() {
    while (!in_flight_.empty() && !unstable_) handle_report(in_flight_.wait());
    in_flight_.discard();  // what came after an instability counts for nothing
    log_findings(monitor_.drain());
    setup_.optimizer->store().gather_shadows();
    in_flight_.stop_clock();
}

void Trainer::log_findings(const Findings& findings) {
    for (const MonitorMetrics& metrics : findings.metrics) folder_->log(metrics);
    for (const Alert& alert : findings.alerts) {
        ++summary_.alerts;
        folder_->log(alert);
        observer_->alerted(alert);
    }
}

void Trainer::note_full_log() {
    if (noted_full_log_ || folder_->problem().empty()) return;
    noted_full_log_ = true;
    observer_->noted(folder_->problem() + "; until the next checkpoint what is logged waits in memory");
}

void Trainer::note_folder_changes() {
    for (const std::string& note : folder_->take_notes()) observer_->noted(note);
}

void Trainer::validate() {
    drain();
    if (unstable_ || setup_.test_data->batches_per_epoch() == 0) return;  // trainer.limit_val_batches=0: not at all
    // The checkpoint at the end of an epoch is saved before the validation there. A resumed run finds that in the log,
    // and measures it itself only where the run was killed before it was.
    const auto logged = folder_->logged_validation(progress_.step, setup_.task->metrics());
    if (setup_.ranks->any(logged.has_value())) {
        summary_.validation = logged.value_or(std::vector<Measured>());
        for (const Metric& metric : setup_.task->metrics())
            if (!logged) summary_.validation.push_back({metric, 0.0});
        for (Measured& measured : summary_.validation) setup_.ranks->broadcast(&measured.value, sizeof(double));
    } else {
        share_buffers();
        const WeightAverage::Applied averaged(setup_.average.get(), *setup_.optimizer);
        summary_.validation = evaluate(*setup_.task, *setup_.model, *setup_.test_data, setup_.precision).metrics;
    }
    const ValidationMetrics m{progress_.step, progress_.epoch_number(), summary_.validation};
    folder_->log(m);
    observer_->validated(m);
    for (const auto& callback : callbacks_) callback->on_validation_end(*this, m);
}

// Running statistics and their averages are each rank's own while it trains, and the first one's are kept.
void Trainer::share_buffers() {
    Communicator& ranks = *setup_.ranks;
    if (ranks.alone()) return;
    std::vector<Tensor> shared;
    for (const auto& [name, buffer] : setup_.model->buffers()) shared.push_back(*buffer);
    if (setup_.average)
        for (const Tensor& averaged : setup_.average->buffers()) shared.push_back(averaged);
    for (const Tensor& buffer : shared) {
        std::vector<std::byte> bytes(buffer.bytes());
        Kernels& device = kernels_for(buffer.device());
        device.download(bytes.data(), buffer.raw(), bytes.size());
        ranks.broadcast(bytes.data(), bytes.size());
        if (!ranks.leads()) device.upload(buffer.raw(), bytes.data(), bytes.size());
    }
}

// The run is no worse without them. Ranks take their averages together, and one of them draws.
void Trainer::save_pictures() {
    if (setup_.test_data->batches_per_epoch() == 0) return;
    const WeightAverage::Applied averaged(setup_.average.get(), *setup_.optimizer);
    if (!setup_.ranks->leads()) return;
    std::size_t written = 0;
    try {
        const std::vector<Image> pictures =
            pictures_of(*setup_.task, *setup_.model, *setup_.test_data, setup_.precision);
        const fs::path folder = RunFolder::pictures_of(folder_->path());
        if (!pictures.empty()) make_folders(folder);
        for (; written < pictures.size(); ++written)
            write_file_atomically(folder / fmt::format("{}.jpg", written + 1), encode_jpeg(pictures[written]));
    } catch (const Error& error) {
        observer_->noted(fmt::format("{} pictures of what the model predicts: {}; the model is saved all the same",
                                     written == 0 ? "there are no" : "there are no more", error.what()));
    }
}

// By name what the steps are computed in: a run whose every module is kept in FP32 is an FP32 run.
std::string Trainer::computed_precision() const {
    return computes_low(*setup_.model, setup_.precision) ? setup_.precision.name() : Precision().name();
}

void Trainer::handle_instability(const Instability& found) {
    if (!recovery_.skips() && found.breaks) {
        unstable_ = found;
        return;
    }
    if (const std::string kind = name_of(found.kind); monitor_.alerts().raise(kind))
        log_findings({{{found.shown_at, found.at.epoch(), kind, "", found.at.report.loss,
                        fmt::format("step {}: {}", found.shown_at, found.reason)}},
                      {}});
    if (!recovery_.hopeless(found)) return;
    finish_save();
    try {
        recovery_.give_up(found, "", good_checkpoint(found).step, folder_->path());
    } catch (const UnstableError& error) {
        record_failure(error.failure());
        throw;
    }
}

// One from before the trouble began.
LatestCheckpoint Trainer::good_checkpoint(const Instability& found) const {
    return folder_->checkpoints().latest(found.good_until);
}

void Trainer::recover() {
    finish_save();
    const LatestCheckpoint good = good_checkpoint(*unstable_);
    Recovery recovery;
    try {
        recovery = recovery_.decide(*unstable_, good.step, folder_->path());
    } catch (const UnstableError& error) {
        record_failure(error.failure());
        throw;
    }
    restore(load_checkpoint(good.path), recovery);
    monitor_.discard();
    StepState steps = setup_.optimizer->state();
    steps.skipped_in_a_row = 0;
    setup_.optimizer->set_state(steps);
    unstable_.reset();
    reset_peak_memory(setup_.device);

    folder_->rewind(resume_point());
    if (setup_.ranks->leads())
        for (const std::int64_t later : folder_->checkpoints().steps())
            if (later > progress_.step) std::filesystem::remove(folder_->checkpoints().path_of(later));
    for (const Recovery& each : recovery_.recoveries())
        if (each.back_to == progress_.step) folder_->log(each, progress_.epoch_number());
    start_callbacks();
    saved_at_ = -1;  // the same step again, with what was decided
    save();
    finish_save();
    observer_->noted(fmt::format("recovered at step {}: {}; back to step {} and on in {}{}", recovery.failed_at,
                                 recovery.reason, recovery.back_to, recovery.continues_in(),
                                 recovery.to == recovery.from ? "" : " instead of " + recovery.from));
    if (progress_.step > 0) after_step(validation_due());
}

void Trainer::record_failure(const RunFailure& failure) {
    const Instability& found = failure.found;
    ++summary_.alerts;
    folder_->log(
        Alert{found.shown_at, found.at.epoch(), name_of(found.kind), "", found.at.report.loss, failure.text()});
    in_flight_.stop_clock();
    measure_memory();
    write_summary("unstable", &failure);
}

}  // namespace invar
