#include "invar/train/trainer.h"

#include <cmath>
#include <limits>

#include "invar/config/table.h"
#include "invar/core/error.h"
#include "invar/tasks/registry.h"
#include "invar/train/low_precision.h"
#include "invar/train/run_config.h"
#include "invar/train/step.h"
#include "invar/train/unreached.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// A folder may be renamed between the look at its name and the write: what failed then, or went to the old name, is
// written once more.
template <class Write>
void write_into(RunFolder& folder, const Write& write) {
    folder.follow();
    for (bool done = false; !done;) {
        try {
            write();
            done = !folder.follow();
        } catch (const IoError&) {
            if (!folder.follow()) throw;
        }
    }
}

// What summary.json says; no object where it says nothing.
nlohmann::json read_summary(const fs::path& file) {
    std::error_code ignored;
    const bool readable = fs::is_regular_file(file, ignored);
    return nlohmann::json::parse(readable ? read_file(file) : "", nullptr, false);
}

constexpr std::int64_t kWarmUps = 5;  // steps that the rate is measured without, where there are more

JsonLine summary_line(const Config& config, const RunSummary& s, const Device& device) {
    JsonLine line;
    line.add("exp_name", config.exp_name)
        .add("status", s.status)
        .add("model", config.model.name())
        .add("data", config.data.name());
    line.add("precision", s.precision).add("device", device.str()).add("seed", config.seed);
    line.add("epochs", s.epochs)
        .add("steps", s.steps)
        .add("skipped_steps", s.skipped)
        .add("alerts", s.alerts)
        .add("final_scale", s.final_scale);
    if (s.steps > 0) line.add("train_loss", s.train_loss);
    for (const Measured& measured : s.validation) line.add("val_" + measured.metric.name, measured.value);
    line.add("train_seconds", s.train_seconds)
        .add("samples_per_s", s.samples_per_s)
        .add("max_grad_norm", s.max_grad_norm);
    if (std::isfinite(s.waited_share)) line.add("waited_share", s.waited_share);
    JsonLine precisions;
    for (const PrecisionSpan& span : s.precisions) precisions.add(std::to_string(span.step), span.precision);
    line.add("precision_by_step", precisions).add("recoveries", std::int64_t(s.recoveries.size()));
    for (std::size_t i = 0; i < s.recoveries.size(); ++i) {
        const Recovery& r = s.recoveries[i];
        JsonLine recovery;
        recovery.add("failed_at", r.failed_at).add("back_to", r.back_to).add("from", r.from).add("to", r.to);
        recovery.add("reason", r.reason);
        if (!r.setting.empty()) recovery.add("setting", r.setting);
        line.add(fmt::format("recovery_{}", i + 1), recovery);
    }
    line.add("all_finite", s.all_finite).add("peak_bytes", memory_line(s.memory.peak, s.memory.peak_total));
    return line;
}

}  // namespace

double RunSummary::val(std::string_view metric) const {
    for (const Measured& measured : validation)
        if (measured.metric.name == metric) return measured.value;
    return std::numeric_limits<double>::quiet_NaN();
}

Trainer::Trainer(Config config, std::optional<fs::path> resume)
    : Trainer(make_task(config), config, std::move(resume)) {}

Trainer::Trainer(std::shared_ptr<const Task> task, Config config, std::optional<fs::path> resume)
    : config_(std::move(config)),
      config_yaml_(to_yaml(config_)),
      setup_(std::move(task), config_),
      reports_(setup_.device),
      monitor_(config_.monitor, setup_),
      stability_(config_.stability),
      plan_(config_.trainer, setup_.steps_per_epoch) {
    summary_.precisions = {{0, computed_precision()}};
    if (resume) resume_from(*resume);
    scale_ = setup_.scaler->get_scale();
}

void Trainer::resume_from(const fs::path& folder) {
    FolderLock lock(folder);  // first, so that no other process moves on what is about to be read
    const LatestCheckpoint latest =
        CheckpointFolder(RunFolder::checkpoints_of(folder), int(config_.trainer.keep_checkpoints)).latest();
    latest.check_usable(folder);
    for (const std::string& reason : latest.passed_over) notes_.push_back("passed over a checkpoint: " + reason);
    if (latest) {
        try {
            restore(load_checkpoint(latest.path));
        } catch (const Error& error) {
            fail("{}: {}", latest.path.string(), error.what());
        }
        saved_at_ = progress_.step;
    } else {
        notes_.push_back(fmt::format("{} holds no checkpoint yet; starting from the beginning", folder.string()));
    }
    const fs::path file = RunFolder::summary_of(folder);
    const nlohmann::json before = read_summary(file);
    const bool finished = progress_.step >= setup_.total_steps && before.is_object() &&
                          before.value("status", nlohmann::json()) == "finished";
    if (latest && !finished)
        notes_.push_back(fmt::format("resuming at step {} from {}", progress_.step, latest.path.string()));
    read_totals(file, before);
    if (finished) return leave_finished(folder, before);
    folder_.emplace(RunFolder::reopen(folder, std::move(lock), config_, progress_.step, logged_steps_));
    for (std::string& note : folder_->take_notes()) notes_.push_back(std::move(note));
    for (const Recovery& recovery : summary_.recoveries)
        if (recovery.back_to == progress_.step) folder_->log(recovery, progress_.epoch);
}

// Nothing is going to be done under the settings of now, so that nothing in the folder may tell of them. A
// configuration that was damaged is written again as the run had it.
void Trainer::leave_finished(const fs::path& folder, const nlohmann::json& before) {
    const RunConfig found = read_run_config(folder);
    const Config was = parse_config(found.yaml, RunFolder::config_of(folder).string());
    for (const Field& field : config_fields()) {
        if (!field.applies(config_)) continue;
        const std::string wanted = field.print(config_);
        if (!field.applies(was) || wanted != field.print(was))
            summary_.not_applied.push_back(fmt::format("{}={}", field.key, wanted));
    }
    if (!found.note.empty()) write_file_atomically(RunFolder::config_of(folder), run_config_text(was));
    summary_.nothing_left = true;
    summary_.folder = folder;
    summary_.status = "finished";
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    std::erase_if(summary_.precisions,
                  [&](const PrecisionSpan& span) { return span.step > 0 && span.step >= progress_.step; });
    summary_.precision = summary_.precisions.back().precision;
    summary_.validation.clear();
    for (const Metric& metric : setup_.task->metrics())
        if (const auto value = before.find("val_" + metric.name); value != before.end())
            summary_.validation.push_back({metric, number_of(*value)});
    summary_.train_seconds = earlier_.seconds;
    summary_.samples_per_s = earlier_.samples_per_s;
    summary_.waited_share = earlier_.waited_share;
    summary_.memory = earlier_.memory;
    summary_.all_finite = before.value("all_finite", nlohmann::json(true)) != false;
}

RunSummary Trainer::run(Observer& observer) {
    stop_requested_ = false;
    if (summary_.nothing_left) {
        for (const std::string& note : notes_) observer.noted(note);
        return summary_;
    }
    if (!folder_) folder_.emplace(RunFolder::create(config_));
    summary_.folder = folder_->path();
    used_before_ = cpu_use();
    reset_peak_memory(setup_.device);
    write_summary("running");  // whatever it said before, it is not finished now
    observer.started(setup_, *folder_, progress_);
    for (const std::string& note : notes_) observer.noted(note);
    for (const std::string& note : unreached_settings(config_, setup_)) observer.noted(note);
    ReportSlots slots = reports_.slots();
    slots.halt = halts();
    step_.emplace(setup_, config_.trainer.cuda_graph, slots, [&](const std::string& note) { observer.noted(note); });
    if (config_.trainer.on_instability == "recover" && progress_.step == 0) save(observer);  // somewhere to go back to
    if (validation_due()) validate(observer);  // resumed from a checkpoint whose validation may not have been reached

    while (progress_.step < setup_.total_steps && !stop_requested_) {
        train_epoch(observer);
        if (unstable_ || progress_.step >= setup_.total_steps || stop_requested_) hear_out(observer);
        if (unstable_) recover(observer);
    }

    const bool finished = progress_.step >= setup_.total_steps;
    measure_memory();
    save(observer);
    if (finished) validate(observer);
    write_summary(finished ? "finished" : "interrupted");
    tell_of_folder(observer);
    summary_.folder = folder_->path();
    return summary_;
}

// How long the processes before this one have trained, how fast, and the memory it took, from the summary that was
// written just before the checkpoint. Where that is of another step, since the newest checkpoint was damaged or not
// written any more, the time is taken in proportion.
void Trainer::read_totals(const fs::path& file, const nlohmann::json& before) {
    if (progress_.step == 0) return;
    std::error_code ignored;
    try {
        const double steps = before.at("steps");
        if (steps <= 0) return;
        earlier_.seconds = before.at("train_seconds").get<double>() * std::min(double(progress_.step) / steps, 1.0);
        earlier_.samples_per_s = before.at("samples_per_s");
        if (before.contains("waited_share")) earlier_.waited_share = before.at("waited_share");
        const nlohmann::json& peak = before.at("peak_bytes");
        for (int i = 0; i < kPurposes; ++i) earlier_.memory.peak[std::size_t(i)] = peak.at(name_of(Purpose(i)));
        earlier_.memory.peak_total = peak.at("total");
    } catch (const nlohmann::json::exception&) {
        notes_.push_back(fmt::format("{} {}; time, speed and memory are those of this process alone", file.string(),
                                     fs::exists(file, ignored) ? "cannot be made sense of" : "is missing"));
    }
}

void Trainer::measure_memory() {
    summary_.memory = memory_stats(setup_.device);
    auto& peak = summary_.memory.peak;
    for (std::size_t i = 0; i < peak.size(); ++i) peak[i] = std::max(peak[i], earlier_.memory.peak[i]);
    summary_.memory.peak_total = std::max(summary_.memory.peak_total, earlier_.memory.peak_total);
}

// By name what the steps are computed in: a run whose every module is kept in FP32 is an FP32 run.
std::string Trainer::computed_precision() const {
    return computes_low(*setup_.model, setup_.precision) ? setup_.precision.name() : Precision().name();
}

// Of all processes that trained this run, each by the time it did.
double Trainer::waited_share() const {
    const double now = (cpu_use() - used_before_).waited_share(), before = earlier_.waited_share;
    const double seconds = clock_.seconds(), all = earlier_.seconds + seconds;
    if (std::isnan(before) || !(all > 0)) return now;
    if (std::isnan(now) || !(seconds > 0)) return before;
    return (earlier_.seconds * before + seconds * now) / all;
}

void Trainer::write_summary(const std::string& status, const std::string& failure) {
    summary_.status = status;
    summary_.precision = computed_precision();
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    summary_.final_scale = setup_.scaler->get_scale();
    summary_.steps_now = heard_steps_;
    summary_.train_seconds = earlier_.seconds + clock_.seconds();
    summary_.waited_share = waited_share();
    const bool warm = trained_samples_ > warm_samples_;  // there were more steps than the first ones
    summary_.unrated_steps = warm ? kWarmUps : 0;
    const double before = earlier_.samples_per_s > 0 ? earlier_.seconds : 0.0;
    const double rated = before + clock_.seconds() - (warm ? warm_seconds_ : 0.0);
    const double samples = before * earlier_.samples_per_s + double(trained_samples_ - (warm ? warm_samples_ : 0));
    // Where nothing was trained the rate is the earlier one: times its seconds and over them, it may lose its last
    // digit.
    summary_.samples_per_s = heard_steps_ == 0 ? earlier_.samples_per_s : rated > 0 ? samples / rated : 0.0;
    summary_.all_finite =
        summary_.losses_finite && kernels_for(setup_.device).all_finite(setup_.optimizer->store().weights().view());
    JsonLine line = summary_line(config_, summary_, setup_.device);
    if (status == "interrupted") line.add("interrupted_by", stopped_by_.load());
    if (!failure.empty()) line.add("failure", failure);
    write_into(*folder_, [&] {
        folder_->sync();  // first: no summary says "finished" of a run whose log lacks lines
        folder_->write_summary(line);
    });
}

void Trainer::train_epoch(Observer& observer) {
    Loader& data = *setup_.train_data;
    setup_.model->train();
    data.start_epoch(progress_.epoch, progress_.batch);
    while (progress_.step < setup_.total_steps && !stop_requested_) {
        follow_plan(observer);
        if (unstable_) return;
        clock_.start();
        const std::vector<Batch> group = setup_.next_group();
        if (group.empty()) break;

        if (given_.size() == reports_.room()) hear(reports_.wait(), observer);
        given_.push_back({progress_, default_generator().state()});
        for (const Batch& batch : group) given_.back().samples += batch.size;
        (*step_)(group);
        ++progress_.step;
        monitor_.look(progress_.step, progress_.epoch, group);
        progress_.batch = data.position();
        observer.ticked(progress_, setup_.total_steps);
        while (const std::optional<StepReport> report = reports_.poll()) hear(*report, observer);
        if (unstable_) return;

        const bool epoch_ended = progress_.batch >= data.batches_per_epoch();
        if (epoch_ended) ++progress_.epoch, progress_.batch = 0;
        const std::int64_t every = config_.trainer.checkpoint_every_n_steps;
        if (epoch_ended || (every > 0 && progress_.step % every == 0)) save(observer);
        if (validation_due()) validate(observer);
        if (epoch_ended) return;
    }
}

// Changes the precision where the schedule says so. Just before a step, so that what is saved and validated after one
// belongs to the precision that it was made in.
void Trainer::follow_plan(Observer& observer) {
    const Precision wanted = plan_.at(progress_.step);
    if (wanted == setup_.precision) return;
    hear_out(observer);
    if (unstable_) return;
    observer.noted(
        fmt::format("from step {} on in {} instead of {}", progress_.step + 1, wanted.name(), setup_.precision.name()));
    setup_.set_precision(wanted);
    scale_ = setup_.scaler->get_scale();
    if (const std::string now = computed_precision(); summary_.precisions.back().precision != now)
        summary_.precisions.push_back({progress_.step, now});
}

// Where the run stands says it all, so that a resumed run validates where the other one did. The last one is run()'s.
bool Trainer::validation_due() const {
    if (progress_.step == 0 || progress_.step >= setup_.total_steps) return false;
    if (progress_.batch == 0) return true;
    const std::int64_t every = config_.trainer.val_check_interval.among(setup_.steps_per_epoch);
    return every > 0 && (progress_.batch + setup_.accumulate - 1) / setup_.accumulate % every == 0;
}

// What the oldest step that was still out has to say: on the CPU at once, on a GPU some steps later.
void Trainer::hear(StepReport report, Observer& observer) {
    const Given given = given_.front();
    given_.pop_front();
    if (unstable_) return;  // what came after it counts for nothing
    heard_ = given, heard_scale_ = scale_;
    if (!setup_.scaler->enabled()) report.scale = {};
    // NaN has a sign, which means nothing and looks like something.
    if (std::isnan(report.loss)) report.loss = std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(report.step.grad_norm)) report.step.grad_norm = std::numeric_limits<float>::quiet_NaN();
    const double now = end_of(report);
    samples_ += given.samples;
    trained_samples_ += given.samples;
    if (++heard_steps_ == kWarmUps) warm_seconds_ = now, warm_samples_ = trained_samples_;
    if (std::isfinite(report.step.grad_norm))
        summary_.max_grad_norm = std::max(summary_.max_grad_norm, double(report.step.grad_norm));
    summary_.losses_finite = summary_.losses_finite && std::isfinite(report.loss);
    log_step(given, report, now, observer);
    const HeardStep heard{given.step(), given.before.epoch, given.samples, now, given_.empty(), report};
    tell(monitor_.heard(heard), observer);
    if (const std::optional<Instability> found = stability_.judge(heard))
        react(*found, observer);
    else
        for (const char* kind : Stability::kKinds) monitor_.alerts().clear(kind);
}

void Trainer::log_step(const Given& given, const StepReport& report, double now, Observer& observer) {
    const StepState& step = report.step;
    const std::int64_t every = config_.trainer.log_every_n_steps;
    const std::int64_t number = given.step();
    const bool due = number == 1 || number == setup_.total_steps || (every > 0 && number % every == 0);
    const bool scale_moved = scale_ != double(report.scale.scale);
    scale_ = report.scale.scale;
    // A skipped step always has its line, and a new scale: nobody should have to guess which ones did not count.
    if (!due && !step.skip && !scale_moved) return;
    StepMetrics m;
    m.step = number;
    m.total_steps = setup_.total_steps;
    m.epoch = given.before.epoch;
    m.loss = report.loss;
    m.lr = setup_.optimizer->groups()[0].lr * step.lr_factor;
    m.grad_norm = step.grad_norm;
    m.precision = computed_precision();
    m.scale = report.scale.scale;
    m.growth_tracker = report.scale.growth_tracker;
    m.skipped_now = step.skip;
    m.skip_reason = skip_reason(report);
    m.skipped = step.skipped;
    m.samples_per_s = now > logged_at_ ? double(samples_) / (now - logged_at_) : 0.0;
    m.memory = memory_stats(setup_.device);
    logged_at_ = now, samples_ = 0;
    folder_->log(m);
    ++logged_steps_;
    tell_of_full_log(observer);
    observer.stepped(m);
    summary_.train_loss = m.loss;
}

// Until every step has been heard of: before anything that shows or keeps where the run stands.
void Trainer::hear_out(Observer& observer) {
    while (!given_.empty()) hear(reports_.wait(), observer);
    tell(monitor_.settle(), observer);
    stop_clock();
}

// When a step ended, in seconds of training. The device says how long after the first one of this stretch; when its
// report came to be read depends on what the host was doing.
double Trainer::end_of(const StepReport& report) {
    if (!stretch_) stretch_ = {clock_.seconds(), report.ended_ns};
    return stretch_->seconds + 1e-9 * double(report.ended_ns - stretch_->ended_ns);
}

void Trainer::stop_clock() {
    clock_.stop();
    stretch_.reset();
}

void Trainer::tell(const Findings& findings, Observer& observer) {
    for (const MonitorMetrics& metrics : findings.metrics) folder_->log(metrics);
    for (const Alert& alert : findings.alerts) {
        ++summary_.alerts;
        folder_->log(alert);
        observer.alerted(alert);
    }
}

void Trainer::tell_of_full_log(Observer& observer) {
    if (told_full_log_ || folder_->problem().empty()) return;
    told_full_log_ = true;
    observer.noted(folder_->problem() + "; until the next checkpoint what is logged waits in memory");
}

void Trainer::tell_of_folder(Observer& observer) {
    for (const std::string& note : folder_->take_notes()) observer.noted(note);
}

void Trainer::validate(Observer& observer) {
    hear_out(observer);
    if (unstable_ || setup_.test_data->batches_per_epoch() == 0) return;  // trainer.limit_val_batches=0: not at all
    summary_.validation = evaluate(*setup_.task, *setup_.model, *setup_.test_data, setup_.precision).metrics;
    const ValidationMetrics m{progress_.step, progress_.epoch, summary_.validation};
    folder_->log(m);
    observer.validated(m);
}

void Trainer::save(Observer& observer) {
    if (saved_at_ == progress_.step) return;
    hear_out(observer);
    if (unstable_) return;  // every checkpoint is a good one
    measure_memory();
    write_summary("running");
    const PurposeScope purpose(Purpose::workspace);  // the copies that go into the file
    Checkpoint checkpoint = take_snapshot(setup_, progress_, config_yaml_);
    checkpoint.state["watch"] = watch_state();
    write_into(*folder_, [&] { folder_->checkpoints().save(progress_.step, checkpoint); });
    saved_at_ = progress_.step;
    tell_of_folder(observer);
}

}  // namespace invar
