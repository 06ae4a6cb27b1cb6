#include "invar/validate/validated.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "invar/config/value.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/version.h"
#include "invar/io/file.h"
#include "invar/io/jsonl.h"
#include "invar/tasks/registry.h"
#include "invar/train/low_precision.h"
#include "invar/train/setup.h"
#include "invar/validate/benefits.h"
#include "invar/validate/command_line.h"
#include "invar/validate/run_log.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMostRead = std::uint64_t(16) << 20;  // of the end of the file; older lines are forgotten

// FNV-1a: nobody gains by making two configurations collide.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3u;
    return hash;
}

std::string now() {
    const std::time_t moment = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    gmtime_r(&moment, &utc);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    return date;
}

std::optional<Verdict> parse_verdict(const nlohmann::json& text) {
    for (const Verdict verdict : {Verdict::pass, Verdict::marginal, Verdict::fail})
        if (text == name_of(verdict)) return verdict;
    return std::nullopt;
}

// Whether so many of the validation's batches are at least as many as the run's, whatever there are.
bool covers(const BatchCount& validated, const BatchCount& wanted) {
    if (validated == BatchCount::all() || validated == wanted) return true;
    if (validated.is_share != wanted.is_share) return false;
    return validated.is_share ? validated.share >= wanted.share : validated.count >= wanted.count;
}

// Lines of versions that did not write a length count for nothing.
bool covers(const nlohmann::json& line, const TrainerConfig& wanted) {
    const auto number = [&](const char* key) {
        const auto found = line.find(key);
        return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
    };
    const auto batches = [&](const char* key) {
        const auto found = line.find(key);
        BatchCount none = BatchCount::of(-1);
        double value = 0.0;
        if (found == line.end() || !found->is_string() || !parse_number(found->get<std::string>(), value)) return none;
        const bool is_share = found->get<std::string>().find_first_of(".e") != std::string::npos;
        if (is_share) return BatchCount{true, value, 0};
        return value >= 0 && value < 1e15 ? BatchCount::of(std::int64_t(value)) : none;
    };
    const std::int64_t steps = number("max_steps");
    const bool unbounded = steps < 0, enough = wanted.max_steps >= 0 && steps >= wanted.max_steps;
    return number("max_epochs") >= wanted.max_epochs && (unbounded || enough) &&
           covers(batches("limit_train_batches"), wanted.limit_train_batches) &&
           covers(batches("limit_val_batches"), wanted.limit_val_batches);
}

// What may come from a file that anyone could have edited, fit for one line on a terminal.
std::string plain_text(const nlohmann::json& line, const char* key) {
    const auto found = line.find(key);
    if (found == line.end() || !found->is_string()) return "";
    return printable(found->get<std::string>().substr(0, 300));
}

}  // namespace

fs::path validated_file() {
    // As the XDG specification has it, a relative path there does not count.
    if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/')
        return fs::path(state) / "invar/validated.jsonl";
    if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
        return fs::path(home) / ".local/state/invar/validated.jsonl";
    return {};
}

std::string validation_key(const Config& config) {
    Config kept;
    kept.task = config.task;
    kept.model = config.model;
    kept.data = config.data;
    // Where the files lie says nothing about what they hold.
    if (kept.data.info().find("root") != nullptr) kept.data.set("root", "null");
    kept.data.num_workers = DataConfig{}.num_workers;
    kept.scaler = config.scaler;
    const Precision precision = config.trainer.at_level(config.trainer.precision);
    kept.trainer.precision = precision.name();
    kept.trainer.amp_level = name_of(precision.level);
    kept.trainer.precision_schedule = config.trainer.precision_schedule;
    kept.trainer.precision_overrides = config.trainer.precision_overrides;
    kept.trainer.gradient_clip_val = config.trainer.clip_limit();
    kept.trainer.gradient_clip_algorithm = config.trainer.gradient_clip_algorithm;
    kept.trainer.accumulate_grad_batches = config.trainer.accumulate_grad_batches;
    return fmt::format("{:016x}", hash_of(to_yaml(kept) + INVAR_VERSION));
}

bool remember(const fs::path& file, const Validation& validation, const fs::path& report) {
    if (file.empty() || validation.verdict == Verdict::invalid) return false;
    std::string lines;
    for (const Arm& arm : validation.candidates) {
        const Config config = candidate_config(validation.options.base, arm.name);
        JsonLine line;
        line.add("key", validation_key(config)).add("date", now()).add("verdict", name_of(arm.verdict));
        line.add("metric", validation.metric).add("difference", arm.equivalence.difference);
        line.add("seeds", validation.options.seeds).add("model", config.model.name()).add("data", config.data.name());
        line.add("precision", arm.name).add("version", INVAR_VERSION);
        const TrainerConfig& trainer = config.trainer;
        line.add("max_epochs", trainer.max_epochs).add("max_steps", trainer.max_steps);
        line.add("limit_train_batches", print_value(trainer.limit_train_batches));
        line.add("limit_val_batches", print_value(trainer.limit_val_batches));
        if (const std::optional<Benefits> gained = benefits_of(validation.baseline, arm)) {
            line.add("machine", machine_of(validation.device, validation.threads, world().size()));
            line.add("samples_per_s", gained->samples_per_s).add("fp32_samples_per_s", gained->fp32_samples_per_s);
            line.add("peak_bytes", gained->peak_bytes).add("fp32_peak_bytes", gained->fp32_peak_bytes);
        }
        lines += line.add("report", fs::absolute(report).string()).text() + "\n";
    }
    make_folders(file.parent_path());
    const Descriptor out = Descriptor::open(file, O_RDWR | O_APPEND | O_CREAT, "write");
    int failed;
    do failed = ::flock(out.get(), LOCK_EX);  // until `out` is closed; a disk without locks still appends in one write
    while (failed != 0 && errno == EINTR);
    char last = '\n';
    if (const std::uint64_t size = out.size(); size > 0) out.read_at(size - 1, &last, 1);
    out.write_all(last == '\n' ? lines : "\n" + lines);
    out.sync();
    return true;
}

void for_each_remembered(const fs::path& file, const Config& config,
                         const std::function<void(const nlohmann::json&)>& call) {
    std::error_code error;
    if (file.empty() || !fs::is_regular_file(file, error)) return;
    const Descriptor in = Descriptor::open(file, O_RDONLY, "read");
    const std::uint64_t size = in.size(), from = size > kMostRead ? size - kMostRead : 0;
    std::string text(static_cast<std::size_t>(size - from), '\0');
    in.read_at(from, text.data(), text.size());
    const std::string key = validation_key(config);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = std::string_view(text).substr(begin, end - begin);
        begin = end + 1;
        if (content.find(key) == content.npos) continue;
        const nlohmann::json line = nlohmann::json::parse(content, nullptr, false);
        if (line.is_object() && line.value("key", nlohmann::json()) == key) call(line);
    }
}

std::optional<Remembered> recall(const fs::path& file, const Config& config) {
    std::optional<Remembered> found;
    for_each_remembered(file, config, [&](const nlohmann::json& line) {
        const std::optional<Verdict> verdict = parse_verdict(line.value("verdict", nlohmann::json()));
        if (verdict && covers(line, config.trainer))
            found = Remembered{*verdict, plain_text(line, "date"), plain_text(line, "report")};
    });
    return found;
}

std::string limits_text(const TrainerConfig& trainer) {
    std::string text;
    const auto add = [&](const char* key, const std::string& value) {
        text += fmt::format("{}trainer.{}={}", text.empty() ? "" : " ", key, value);
    };
    if (trainer.max_steps >= 0) add("max_steps", std::to_string(trainer.max_steps));
    if (trainer.limit_train_batches != BatchCount::all())
        add("limit_train_batches", print_value(trainer.limit_train_batches));
    if (trainer.limit_val_batches != BatchCount::all())
        add("limit_val_batches", print_value(trainer.limit_val_batches));
    return text;
}

std::vector<std::string> validating_words(const Config& config) {
    std::vector<std::string> words;
    // A run may go without validation data; a validation may not.
    if (config.trainer.limit_val_batches.among(1) == 0) words.emplace_back("trainer.limit_val_batches=1.0");
    words.insert(words.end(),
                 {"--candidates", is_of_its_own(config) ? kConfigured : config.trainer.resolved_precision().name()});
    const std::vector<std::string> plugins = plugin_words(config.plugins);
    words.insert(words.end(), plugins.begin(), plugins.end());
    return words;
}

std::string validation_warning(const fs::path& file, const Config& config, const std::string& again) {
    if (!why_fp32(make_task(config), config).empty()) return "";
    const std::string precision = is_of_its_own(config) ? kConfigured : config.trainer.resolved_precision().name();
    const std::string what = fmt::format("{} for {} on {}", precision, config.model.name(), config.data.name());
    const std::optional<Remembered> known = recall(file, config);
    const std::string length =
        fmt::format("{} epoch{}", config.trainer.max_epochs, config.trainer.max_epochs == 1 ? "" : "s");
    if (!known)
        return fmt::format("{} was never validated here for runs of this length ({}{}{}); find out first with: {}",
                           what, length, limits_text(config.trainer).empty() ? "" : ", ", limits_text(config.trainer),
                           again);
    if (known->verdict == Verdict::pass) return "";
    return fmt::format("{} was validated as {} on {} (see {}); try again with: {}", what, name_of(known->verdict),
                       known->date, known->report, again);
}

}  // namespace invar
