// The part of Trainer that keeps a run and goes on with it: checkpoints, summary.json, resuming.
#include <algorithm>

#include "invar/config/table.h"
#include "invar/core/error.h"
#include "invar/train/find_checkpoint.h"
#include "invar/train/run_config.h"
#include "invar/train/trainer.h"
#include "invar/train/weights.h"

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

}  // namespace

void Trainer::save() {
    if (saved_at_ == progress_.step) return;
    finish_save();
    drain();
    if (unstable_) return;  // every checkpoint is a good one
    measure_memory();
    write_summary("running");
    // What a rank sent while it died may be anything: only what all have lived through is kept.
    setup_.ranks->barrier();
    const PurposeScope purpose(Purpose::workspace);  // the copies that go into the file
    SnapshotParts snapshot = take_snapshot_parts(setup_, progress_, config_yaml_);
    if (setup_.ranks->leads()) snapshot.state["watch"] = watch_state();
    saving_ = {progress_.step, kept_checkpoints()};
    saved_at_ = progress_.step;
    save_requested_ = false;
    writer_.start(folder_->checkpoints().path_of(progress_.step), std::move(snapshot));
    note_folder_changes();
    if (!config_.trainer.async_checkpoint) finish_save();
}

void Trainer::finish_save(bool wait) {
    if (!saving_) return;
    Communicator& ranks = *setup_.ranks;
    for (;;) {
        std::exception_ptr failure;
        try {
            if (!writer_.finish(wait)) return;
        } catch (const IoError&) {
            failure = std::current_exception();
        }
        // What failed because its folder was renamed, or went to the old name, is written once more.
        if (ranks.any(folder_->follow())) {
            writer_.start_again(folder_->checkpoints().path_of(saving_->step));
            wait = true;
            continue;
        }
        if (!failure) break;
        saving_.reset();
        writer_.stop();
        std::rethrow_exception(failure);
    }
    const Saving saved = *std::exchange(saving_, std::nullopt);
    writer_.stop();
    if (ranks.leads()) folder_->checkpoints().prune(saved.step, saved.kept);
    note_folder_changes();
    if (!callbacks_.empty()) setup_.optimizer->store().gather_shadows();
    for (const auto& callback : callbacks_) callback->on_checkpoint(*this, folder_->checkpoints().path_of(saved.step));
}

void Trainer::measure_memory() {
    summary_.memory = earlier_.memory_with(memory_stats(setup_.device));
}

void Trainer::write_summary(const std::string& status, const RunFailure* failure) {
    summary_.status = status;
    summary_.precision = computed_precision();
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    summary_.final_scale = setup_.scaler->get_scale();
    summary_.steps_now = in_flight_.reported();
    summary_.recoveries = recovery_.recoveries();
    const Speed speed = in_flight_.speed(earlier_.speed);
    summary_.train_seconds = speed.seconds;
    summary_.samples_per_s = speed.samples_per_s;
    if (speed_) summary_.rate = speed_->at(speed.samples_per_s);
    summary_.unrated_steps = speed.unrated_steps;
    summary_.waited_share =
        earlier_.waited_share_with((cpu_use() - used_before_).waited_share(), speed.seconds - earlier_.speed.seconds);
    summary_.all_finite = summary_.losses_finite &&
                          kernels_for(setup_.device).all_finite(setup_.optimizer->store().known_weights().view());
    JsonLine line = summary_line(config_, summary_, setup_.device);
    line.add("ranks", setup_.ranks->size());
    if (!summary_.validation.empty()) line.add("val_samples", setup_.test_data->samples_per_epoch());
    if (status == "interrupted") line.add("interrupted_by", stopped_by_.load());
    if (failure != nullptr) {
        const Explanation& why = failure->why;
        line.add("failure", failure->text()).add("failure_reason", failure->reason());
        if (why.full_precision != Explanation::FullPrecision::unknown) {
            line.add("failure_in_fp32", name_of(why.full_precision));
            if (why.verified) line.add("failure_remedy", why.remedy.str());
        }
    }
    write_into(*folder_, [&] {
        folder_->sync();  // first: no summary says "finished" of a run whose log lacks lines
        folder_->write_summary(line);
    });
}

namespace {

// Ranks may see other files by the same name.
void check_same_checkpoint(Communicator& ranks, const fs::path& path, const Checkpoint* checkpoint) {
    if (ranks.alone()) return;
    ranks.check_same("--resume: the checkpoints",
                     checkpoint == nullptr
                         ? "none"
                         : fmt::format("{}, checksum {:08x}", path.filename().string(), checksum_of(*checkpoint)));
}

}  // namespace

void Trainer::resume_from(const Resume& resume) {
    const fs::path& folder = resume.folder;
    std::optional<FolderLock> lock;
    if (setup_.ranks->leads())
        lock.emplace(folder);  // first, so that no other process moves on what is about to be read
    setup_.ranks->barrier();
    const LatestCheckpoint latest = find_checkpoint(folder, resume.checkpoint);
    latest.check_usable(folder);
    bool was_averaged = false;
    for (const std::string& reason : latest.passed_over) notes_.push_back("passed over a checkpoint: " + reason);
    if (latest) {
        const Checkpoint checkpoint = load_checkpoint(latest.path);
        check_same_checkpoint(*setup_.ranks, latest.path, &checkpoint);
        check_same_data(checkpoint, setup_.train_data->dataset(), latest.path.string());
        try {
            restore(checkpoint);
        } catch (const UsageError& error) {
            fail<UsageError>("{}: {}", latest.path.string(), error.what());
        } catch (const Error& error) {
            fail("{}: {}", latest.path.string(), error.what());
        }
        was_averaged = has_average(checkpoint);
        const CheckpointFolder own(RunFolder::checkpoints_of(folder), int(config_.trainer.keep_checkpoints));
        std::error_code ignored;
        if (fs::equivalent(own.path_of(progress_.step), latest.path, ignored)) saved_at_ = progress_.step;
        setup_.ranks->barrier();  // all have read it
        if (resume.checkpoint != "last" && setup_.ranks->leads())
            for (const fs::path& aside : own.put_aside_after(saved_at_ < 0 ? progress_.step - 1 : progress_.step))
                notes_.push_back(fmt::format("the run goes on from before it: put aside {}", aside.string()));
    } else {
        check_same_checkpoint(*setup_.ranks, {}, nullptr);
        if (!config_.init_from.empty()) load_weights(*setup_.model, config_.init_from, &config_.init_fresh);
        if (setup_.average) setup_.average->restart(*setup_.optimizer, 0);
        notes_.push_back(fmt::format("{} holds no checkpoint yet; starting from the beginning", folder.string()));
    }
    const fs::path file = RunFolder::summary_of(folder);
    const nlohmann::json before = read_summary(file);
    const bool finished = ended() && before.is_object() && before.value("status", nlohmann::json()) == "finished";
    if (latest && !finished) {
        notes_.push_back(fmt::format("resuming at step {} from {}", progress_.step, latest.path.string()));
        if (setup_.average && !was_averaged)
            notes_.push_back(
                fmt::format("trainer.ema_decay={:g}: the checkpoint holds no averaged weights; the average begins with "
                            "the weights of step {}",
                            config_.trainer.ema_decay, progress_.step + 1));
        const double begins_at = setup_.scaling.init_scale, goes_on_at = setup_.scaler->get_scale();
        if (setup_.scaler->enabled() && !setup_.scaling.dynamic && goes_on_at != begins_at)
            notes_.push_back(fmt::format("scaler.init_scale={:g} is where a run begins: this one goes on at {:g}",
                                         begins_at, goes_on_at));
        if (!setup_.average && was_averaged)
            notes_.push_back("trainer.ema_decay=0: the averaged weights of the checkpoint are let go");
    }
    try {
        if (progress_.step > 0) earlier_ = EarlierTotals::read(before, progress_.step);
    } catch (const nlohmann::json::exception&) {
        std::error_code ignored;
        notes_.push_back(fmt::format("{} {}; time, speed and memory are those of this process alone", file.string(),
                                     fs::exists(file, ignored) ? "cannot be made sense of" : "is missing"));
    }
    if (finished) return leave_finished(folder, before);
    folder_.emplace(lock ? RunFolder::reopen(folder, std::move(*lock), config_, resume_point())
                         : RunFolder::of_another(folder, config_));
    for (std::string& note : folder_->take_notes()) notes_.push_back(std::move(note));
    for (const Recovery& recovery : recovery_.recoveries())
        if (recovery.back_to == progress_.step) folder_->log(recovery, progress_.epoch_number());
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
    if (!found.note.empty() && setup_.ranks->leads())
        write_file_atomically(RunFolder::config_of(folder), run_config_text(was));
    summary_.nothing_left = true;
    summary_.folder = folder;
    summary_.status = "finished";
    summary_.steps = progress_.step;
    summary_.epochs = progress_.epoch;
    summary_.skipped = setup_.optimizer->state().skipped;
    summary_.recoveries = recovery_.recoveries();
    std::erase_if(summary_.precisions,
                  [&](const PrecisionSpan& span) { return span.step > 0 && span.step >= progress_.step; });
    summary_.precision = summary_.precisions.back().precision;
    summary_.validation.clear();
    for (const Metric& metric : setup_.task->metrics())
        if (const auto value = before.find("val_" + metric.name); value != before.end())
            summary_.validation.push_back({metric, number_of(*value)});
    summary_.train_seconds = earlier_.speed.seconds;
    summary_.samples_per_s = earlier_.speed.samples_per_s;
    const SpeedUnit unit = setup_.task->speed_unit();
    summary_.rate = {unit.name, unit.per_sample * summary_.samples_per_s, before.value("mfu", 0.0)};
    summary_.waited_share = earlier_.waited_share;
    summary_.memory = earlier_.memory;
    summary_.all_finite = before.value("all_finite", nlohmann::json(true)) != false;
}

nlohmann::json Trainer::watch_state() const {
    nlohmann::json recoveries = nlohmann::json::array(), precisions = nlohmann::json::array();
    for (const Recovery& recovery : recovery_.recoveries()) recoveries.push_back(to_json(recovery));
    for (const PrecisionSpan& span : summary_.precisions) precisions.push_back({span.step, span.precision});
    const RunSummary& s = summary_;
    nlohmann::json validation = nlohmann::json::object();
    for (const Measured& measured : s.validation) validation[measured.metric.name] = measured.value;
    nlohmann::json state = {{"monitor", monitor_.state()},
                            {"stability", stability_.state()},
                            {"recoveries", recoveries},
                            {"precisions", precisions},
                            {"logged_steps", logged_steps_},
                            {"summary",
                             {{"alerts", s.alerts},
                              {"train_loss", s.train_loss},
                              {"max_grad_norm", s.max_grad_norm},
                              {"losses_finite", s.losses_finite},
                              {"validation", validation}}}};
    if (after_step_done_ == progress_.step) state["validated"] = true;
    if (lr_factor_ != 1.0) state["lr_factor"] = lr_factor_;
    // Those of callbacks that this process was not given stay, for one that is.
    nlohmann::json callbacks = callback_states_;
    for (const auto& callback : callbacks_) callbacks[callback->name()] = callback->state_dict();
    if (!callbacks.empty()) state["callbacks"] = callbacks;
    return state;
}

void Trainer::restore_watch(const nlohmann::json& watch) {
    monitor_.restore(watch.at("monitor"));
    stability_.restore(watch.at("stability"));
    logged_steps_ =
        watch.value("logged_steps", std::int64_t(0));  // fewer than there are, where nobody had counted them
    scale_learning_rates(watch.value("lr_factor", 1.0));
    after_step_done_ = watch.value("validated", false) ? progress_.step : -1;
    callback_states_ = watch.value("callbacks", nlohmann::json::object());
    for (const auto& callback : callbacks_)
        if (callback_states_.contains(callback->name())) callback->load_state_dict(callback_states_[callback->name()]);
    const nlohmann::json& s = watch.at("summary");
    summary_.alerts = s.at("alerts");
    summary_.train_loss = s.at("train_loss");
    summary_.max_grad_norm = s.at("max_grad_norm");
    summary_.losses_finite = s.at("losses_finite");
    summary_.validation.clear();
    const nlohmann::json& validation = s.at("validation");
    for (const Metric& metric : setup_.task->metrics())
        if (const auto found = validation.find(metric.name); found != validation.end())
            summary_.validation.push_back({metric, found->get<double>()});
}

// The whole state of a run, as save() left it, with one more recovery where there was one. The precision comes first: a
// scaler takes its state only where there is one.
void Trainer::restore(const Checkpoint& checkpoint, const std::optional<Recovery>& added) {
    const nlohmann::json& state = checkpoint.state;
    std::vector<Recovery> recoveries;
    std::vector<PrecisionSpan> precisions;
    std::int64_t step = 0;
    try {
        const nlohmann::json& progress = state.at("progress");
        step = progress.at("step");
        if (setup_.continue_at(config_, step, progress.at("epoch"), progress.at("batch")))
            plan_ = PrecisionPlan(config_.trainer, setup_.steps_per_epoch, setup_.first_epoch_at);
        if (state.contains("watch")) {
            for (const nlohmann::json& each : state.at("watch").at("recoveries"))
                recoveries.push_back(recovery_from_json(each));
            for (const nlohmann::json& each : state.at("watch").at("precisions"))
                precisions.push_back({each.at(0), each.at(1)});
            progress_.step = step;
            restore_watch(state.at("watch"));
        }
    } catch (const nlohmann::json::exception&) {
        fail("the checkpoint's state lacks what a run needs to go on; it was written by something else");
    }
    if (added) recoveries.push_back(*added);
    recovery_.apply(std::move(recoveries));
    // As when the checkpoint was saved, just before the plan is asked again.
    if (const Precision wanted = plan_.at(std::max<std::int64_t>(step - 1, 0)); wanted != setup_.precision)
        set_precision(wanted);
    progress_ = restore_snapshot(setup_, checkpoint);
    if (added && added->remedy.kind == Remedy::Kind::init_scale) setup_.scaler->set_scale(setup_.scaling.init_scale);
    in_flight_.set_scale(setup_.scaler->get_scale());
    restore_precisions(std::move(precisions));
}

void Trainer::restore_precisions(std::vector<PrecisionSpan> precisions) {
    if (!precisions.empty()) summary_.precisions = std::move(precisions);
    const std::string now = computed_precision();
    if (summary_.precisions.back().precision == now) return;
    if (summary_.precisions.back().step == progress_.step) summary_.precisions.pop_back();  // no step was taken in it
    summary_.precisions.push_back({progress_.step, now});
}

}  // namespace invar
