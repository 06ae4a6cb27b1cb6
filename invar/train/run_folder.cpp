#include "invar/train/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/train/logged_names.h"
#include "invar/train/run_config.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLogs = "logs";  // of ranks

// The folder of a start that was killed before it had written its configuration, or of nobody yet.
bool is_unused(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().filename() != FolderLock::kFile && entry->path().filename() != kLogs &&
            !is_temporary(entry->path()))
            return false;
    // To call a folder taken that cannot be read for want of descriptors would make one folder after another for ever.
    if (error) fail_with_errno("read", folder, error.value());
    return true;
}

// Whether something else has this name: a file, or a folder that is not for us to read.
bool is_foreign(const fs::path& path) {
    std::error_code ignored;
    return !fs::is_directory(path, ignored) || ::access(path.c_str(), R_OK | X_OK) != 0;
}

// The lock of this folder where no run has it; of several starts at once one gets it.
std::optional<FolderLock> claim(const fs::path& folder) {
    std::error_code ignored;
    if (fs::exists(folder, ignored) && (is_foreign(folder) || !is_unused(folder))) return std::nullopt;
    make_folders(folder);
    std::optional<FolderLock> lock = FolderLock::try_lock(folder);
    if (lock && !is_unused(folder)) lock.reset();  // another start came first, and has ended meanwhile
    return lock;
}

bool is_same_folder(const Descriptor& opened, const fs::path& path) {
    struct stat ours {
    }, there{};
    return ::fstat(opened.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

// By name, and the folder only where nothing else is in it: somebody may have put something there.
void remove_files_of(const fs::path& run) noexcept {
    std::error_code ignored;
    for (const fs::path& file : {RunFolder::config_of(run), RunFolder::summary_of(run), RunFolder::metrics_of(run),
                                 run / WandbFile::kName, run / FolderLock::kFile})
        fs::remove(file, ignored);
    fs::remove_all(RunFolder::checkpoints_of(run), ignored);
    for (fs::directory_iterator log(run / kLogs, ignored), end; !ignored && log != end; log.increment(ignored))
        if (log->path().filename().string().starts_with("rank-")) fs::remove(log->path(), ignored);
    fs::remove(run / kLogs, ignored);
    fs::remove(run, ignored);
}

}  // namespace

// The configuration first: whatever else a killed run leaves can be made sense of with it.
RunFolder::RunFolder(fs::path path, FolderLock lock, const Config& config, const std::optional<ResumePoint>& resumed)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      config_text_(run_config_text(config)),
      keep_(int(config.trainer.keep_checkpoints)),
      checkpoints_(checkpoints_of(path_), keep_) {
    sweep_temporaries(path_);
    write_file_atomically(config_of(path_), config_text_);
    make_folders(checkpoints_of(path_));
    if (resumed) {
        const std::int64_t there = drop_lines_after(*resumed, true);
        if (there < resumed->logged_steps)
            notes_.push_back(
                fmt::format("{} holds {} of the {} steps that were logged until step {}; the others are "
                            "lost",
                            metrics_path().string(), there, resumed->logged_steps, resumed->step));
    }
    metrics_.emplace(metrics_path());
    const std::optional<std::int64_t> step = resumed ? std::optional(resumed->step) : std::nullopt;
    if (config.logger.tensorboard) events_ = std::make_unique<EventFile>(path_, step);
    if (config.logger.wandb) wandb_ = std::make_unique<WandbFile>(path_, config);
    if (wandb_ && resumed) wandb_->rewind(path_, resumed->step, resumed->validated);
}

RunFolder::RunFolder(fs::path path, const Config& config)
    : path_(std::move(path)), keep_(int(config.trainer.keep_checkpoints)), checkpoints_(checkpoints_of(path_), keep_) {}

RunFolder RunFolder::of_another(const fs::path& folder, const Config& config) {
    return RunFolder(folder, config);
}

RunFolder RunFolder::create(const Config& config) {
    const fs::path wanted = fs::path(config.output_dir) / config.exp_name;
    for (int i = 1;; ++i) {
        const fs::path path = i == 1 ? wanted : fs::path(fmt::format("{}_{}", wanted.string(), i));
        std::optional<FolderLock> lock = claim(path);
        if (!lock) continue;
        try {
            return RunFolder(path, std::move(*lock), config, {});
        } catch (const IoError&) {  // a full disk, say
            remove_files_of(path);
            throw;
        }
    }
}

RunFolder RunFolder::reopen(const fs::path& folder, FolderLock lock, const Config& config, const ResumePoint& from) {
    return RunFolder(folder, std::move(lock), config, from);
}

// Lines after the step were written by the part of the run that is about to be repeated. The recoveries that led back
// to it are known to the checkpoint.
std::int64_t RunFolder::drop_lines_after(const ResumePoint& point, bool keep_validation) {
    const fs::path path = metrics_path();
    if (!fs::exists(path)) return 0;
    const std::string content = read_file(path);
    std::string kept;
    std::int64_t steps = 0;
    std::size_t number = 0, unreadable = 0, first_unreadable = 0;
    for (std::size_t begin = 0, end = 0; begin < content.size(); begin = end + 1) {
        end = std::min(content.find('\n', begin), content.size());
        const std::string_view text = std::string_view(content).substr(begin, end - begin);
        const nlohmann::json line = parse_object(text);
        ++number;
        if (!line.is_object()) {
            // A last line without its end was torn when the run was killed.
            if (!text.empty() && end < content.size() && ++unreadable == 1) first_unreadable = number;
            continue;
        }
        const nlohmann::json found = line.value("step", nlohmann::json(0));
        check<IoError>(found.is_number_integer(),
                       "{}:{}: \"step\" is {}, expected a whole number; mend or delete the line", path.string(), number,
                       found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
        const auto at = found.get<std::int64_t>();
        const bool recovery = line.contains("recovery"), validation = line.contains(logged::of_validation("loss"));
        if (at > point.step || (at == point.step && recovery)) {
            keep_validation = keep_validation && !recovery;  // what follows was measured behind it
            continue;
        }
        if (at == point.step && validation && !point.validated) {
            if (!keep_validation) continue;
            validation_ = line;
        }
        kept.append(text).push_back('\n');
        if (line.contains(logged::kLoss)) ++steps;
    }
    if (unreadable > 0) {
        const fs::path copy = free_name(path, ".damaged");
        write_file_atomically(copy, content);
        notes_.push_back(fmt::format("{}:{}: {} that cannot be read {} left out; the file as it was is now {}",
                                     path.string(), first_unreadable,
                                     unreadable == 1 ? "a line" : fmt::format("{} lines", unreadable),
                                     unreadable == 1 ? "is" : "are", copy.string()));
    }
    write_file_atomically(path, kept);
    return steps;
}

bool RunFolder::is_run(const fs::path& folder) {
    std::error_code ignored;
    return fs::exists(config_of(folder), ignored) || fs::is_directory(checkpoints_of(folder), ignored);
}

bool RunFolder::follow() {
    if (!lock_) return false;
    const Descriptor& place = lock_->folder();
    if (is_same_folder(place, path_)) return false;
    std::error_code error;
    const fs::path now = fs::read_symlink(fmt::format("/proc/self/fd/{}", place.get()), error);
    check<IoError>(
        !error && is_same_folder(place, now),
        "the folder {} was deleted while its run was writing into it, and its checkpoints with it; start the "
        "run again",
        path_.string());
    path_ = now;
    checkpoints_ = CheckpointFolder(checkpoints_of(path_), keep_);
    notes_.push_back(fmt::format("the run's folder was renamed; it goes on in {}", path_.string()));
    return true;
}

// What the run rests on is where it was, or is put there again.
void RunFolder::keep_files() {
    constexpr std::string_view kAgain = "{} was deleted while its run was writing; it is there again";
    if (lock_->renew(path_)) notes_.push_back(fmt::format(kAgain, (path_ / FolderLock::kFile).string()));
    const std::string file = config_of(path_).string();
    if (const std::string damage = run_config_damage(path_); !damage.empty()) {
        write_file_atomically(file, config_text_);
        notes_.push_back(damage == "is missing"
                             ? fmt::format(kAgain, file)
                             : fmt::format("{} {}, though its run had written it; it is whole again", file, damage));
    }
    keep_file(metrics_->file());
    if (events_) keep_file(events_->file());
    if (wandb_) keep_file(wandb_->file());
}

void RunFolder::keep_file(AppendFile& file) {
    const fs::path path = path_ / file.path().filename();
    if (const std::uint64_t lost = file.take_lost(); lost > 0)
        notes_.push_back(
            fmt::format("{} was cut while its run was writing into it; {} bytes of it are lost", path.string(), lost));
    NamedNow now = file.named_in(lock_->folder());
    if (now == NamedNow::nothing) {
        try {
            file.write_anew(path);
            notes_.push_back(fmt::format(
                "{} was deleted while its run was writing into it; it is there again, and whole", path.string()));
        } catch (const IoError&) {
            now = file.named_in(lock_->folder());  // something has come into its place just then
            if (now != NamedNow::another_file) throw;
        }
    }
    if (now == NamedNow::another_file) {
        const fs::path copy = free_name(path, ".kept");
        write_file_atomically(copy, file.content());
        fail<IoError>(
            "{} was replaced by another file while its run was writing into it; what the run has logged is in {}: put "
            "the right one in its place, then go on with --resume",
            path.string(), copy.string());
    }
}

std::optional<std::vector<Measured>> RunFolder::logged_validation(std::int64_t step,
                                                                  const std::vector<Metric>& metrics) const {
    if (!validation_.is_object() || validation_.at("step") != step) return std::nullopt;
    std::vector<Measured> measured;
    for (const Metric& metric : metrics) {
        const auto value = validation_.find(logged::of_validation(metric.name));
        if (value == validation_.end() || !(value->is_number() || value->is_string())) return std::nullopt;
        measured.push_back({metric, number_of(*value)});
    }
    return measured;
}

JsonLine memory_line(const std::array<std::int64_t, kPurposes>& bytes, std::int64_t total) {
    JsonLine line;
    for (int i = 0; i < kPurposes; ++i) line.add(name_of(Purpose(i)), bytes[std::size_t(i)]);
    return line.add("total", total);
}

void RunFolder::scalar(const std::string& tag, std::int64_t step, double value) {
    if (events_) events_->scalar(tag, step, value);
    if (wandb_) wandb_->scalar(tag, step, value);
}

void RunFolder::flush_scalars() {
    if (events_) events_->flush();
    if (wandb_) wandb_->flush();
}

void RunFolder::log(const StepMetrics& m) {
    if (!lock_) return;
    JsonLine line;
    // A figure goes by one name into every file.
    const auto figure = [&](const std::string& name, auto value) {
        line.add(name, value);
        scalar(name, m.step, double(value));
    };
    line.add(logged::kStep, m.step);
    figure(logged::kEpoch, m.epoch);
    figure(logged::kLoss, float(m.loss));
    figure(logged::kLr, m.lr);
    figure(logged::kGradNorm, float(m.grad_norm));
    if (m.grad_norm_clipped) figure(logged::kGradNormClipped, float(*m.grad_norm_clipped));
    line.add("precision", m.precision);
    figure(logged::kScale, m.scale);
    figure(logged::kGrowthTracker, m.growth_tracker);
    figure(logged::kSkipped, m.skipped);
    line.add("skipped_now", m.skipped_now);
    if (m.skipped_now) line.add("skip_reason", m.skip_reason);
    figure(logged::kSamplesPerS, m.samples_per_s);
    if (!m.rate.of_samples()) figure(m.rate.name(), m.rate.per_second);
    if (m.rate.mfu > 0) figure(logged::kMfu, m.rate.mfu);
    if (m.host_bytes > 0) figure(logged::kHostBytes, m.host_bytes);
    if (m.gpu_utilization) figure(logged::kGpuUtilization, *m.gpu_utilization);
    line.add(logged::kPeakBytes, memory_line(m.memory.peak, m.memory.peak_total));
    scalar(fmt::format("{}/total", logged::kPeakBytes), m.step, double(m.memory.peak_total));
    metrics_->write(line);
    flush_scalars();
}

void RunFolder::log(const ValidationMetrics& m) {
    if (!lock_) return;
    JsonLine line;
    line.add(logged::kStep, m.step).add(logged::kEpoch, m.epoch);
    scalar(logged::kEpoch, m.step, double(m.epoch));
    for (const Measured& measured : m.metrics) {
        const std::string name = logged::of_validation(measured.metric.name);
        line.add(name, measured.value);
        scalar(name, m.step, measured.value);
    }
    const bool there = validation_.is_object() && validation_.at("step") == m.step;
    if (!there) metrics_->write(line);
    validation_ = nullptr;
    flush_scalars();
}

void RunFolder::log(const MonitorMetrics& m) {
    if (!lock_) return;
    JsonLine line;
    line.add(logged::kStep, m.step).add(logged::kEpoch, m.epoch);
    const auto by_module = [&](const char* name, const auto& values) {
        if (values.empty()) return;
        JsonLine all;
        for (const auto& [module, value] : values) {
            all.add(module, float(value));
            scalar(fmt::format("{}/{}", name, module), m.step, value);
        }
        line.add(name, all);
    };
    by_module(logged::kGradNorms, m.grad_norms);
    by_module(logged::kSmallGradNorms, m.small_grad_norms);
    by_module(logged::kActivations, m.activations);
    if (m.memory) {
        line.add(logged::kLiveBytes, memory_line(m.memory->live, m.memory->live_total));
        scalar(fmt::format("{}/total", logged::kLiveBytes), m.step, double(m.memory->live_total));
    }
    if (m.step_ms) {
        line.add(logged::kStepMs, *m.step_ms).add(logged::kSamplesPerS, *m.samples_per_s);
        scalar(logged::kStepMs, m.step, *m.step_ms);
    }
    metrics_->write(line);
    flush_scalars();
}

void RunFolder::log(const Alert& a) {
    if (!lock_) return;
    JsonLine line;
    line.add("step", a.step).add("epoch", a.epoch).add("alert", a.kind);
    if (!a.where.empty()) line.add("where", a.where);
    metrics_->write(line.add("value", float(a.value)).add("message", a.message));
    scalar("alerts/" + a.kind + (a.where.empty() ? "" : "/" + a.where), a.step, a.value);
    flush_scalars();
}

void RunFolder::log(const Recovery& r, std::int64_t epoch) {
    if (!lock_) return;
    JsonLine line;
    line.add("step", r.back_to).add("epoch", epoch).add("recovery", r.reason).add("failed_at", r.failed_at);
    line.add("from", r.from).add("to", r.to);
    if (r.remedy) line.add("setting", r.remedy.str());
    metrics_->write(line);
    scalar("alerts/recovery", r.back_to, double(r.failed_at));
    flush_scalars();
}

const std::string& RunFolder::problem() const {
    static const std::string none;
    if (!lock_) return none;
    if (!metrics_->problem().empty()) return metrics_->problem();
    if (events_ && !events_->problem().empty()) return events_->problem();
    return wandb_ ? wandb_->problem() : metrics_->problem();
}

void RunFolder::rewind(const ResumePoint& to) {
    if (!lock_) return;
    keep_files();
    metrics_.reset();  // what waits in it came after the checkpoint of that step, and is to be taken back too
    validation_ = nullptr;
    drop_lines_after(to, false);
    metrics_.emplace(metrics_path());
    flush_scalars();
    if (events_) events_ = std::make_unique<EventFile>(path_, to.step);
    if (wandb_) wandb_->rewind(path_, to.step, to.validated);
}

void RunFolder::write_summary(const JsonLine& summary) const {
    if (!lock_) return;
    write_file_atomically(summary_of(path_), summary.text() + "\n");
}

void RunFolder::discard() noexcept {
    if (!lock_) return;
    std::error_code ignored;
    if (events_) fs::remove(events_->path(), ignored);
    metrics_.reset(), events_.reset(), wandb_.reset();
    remove_files_of(path_);
}

void RunFolder::sync() {
    if (!lock_) return;
    keep_files();
    metrics_->sync();
    if (events_) events_->sync();
    if (wandb_) wandb_->sync();
    sync_folder(path_);
}

}  // namespace invar
