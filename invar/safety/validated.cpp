#include "invar/safety/validated.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/file.h"
#include "invar/io/jsonl.h"

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
    kept.model = config.model;
    kept.data = config.data;
    kept.data.root = DataConfig{}.root;
    kept.data.num_workers = DataConfig{}.num_workers;
    kept.loss = config.loss;
    kept.scaler = config.scaler;
    kept.trainer.precision = Precision::parse(config.trainer.precision).name();
    kept.trainer.amp_level = config.trainer.amp_level;
    kept.trainer.precision_schedule = config.trainer.precision_schedule;
    kept.trainer.precision_overrides = config.trainer.precision_overrides;
    kept.trainer.gradient_clip_val = config.trainer.gradient_clip_val;
    kept.trainer.gradient_clip_algorithm = config.trainer.gradient_clip_algorithm;
    kept.trainer.accumulate_grad_batches = config.trainer.accumulate_grad_batches;
    return fmt::format("{:016x}", hash_of(to_yaml(kept) + INVAR_VERSION));
}

bool needs_validation(const Config& config) {
    const Precision full = Precision::parse("32-true");
    const auto low = [&](const PrecisionChange& change) { return Precision::parse(change.precision) != full; };
    const auto lower = [&](const auto& module) { return Precision::parse(module.second) != full; };
    return config.trainer.resolved_precision() != full || std::ranges::any_of(config.trainer.precision_schedule, low) ||
           std::ranges::any_of(config.trainer.precision_overrides, lower);
}

bool remember(const fs::path& file, const Validation& validation, const fs::path& report) {
    if (file.empty() || validation.baseline.failed()) return false;
    for (const RunRecord& run : validation.baseline.runs)
        if (run.epochs < 1) return false;
    std::string lines;
    for (const Arm& arm : validation.candidates) {
        const Config config = candidate_config(validation.options.base, arm.name);
        JsonLine line;
        line.add("key", validation_key(config)).add("date", now()).add("verdict", name_of(arm.verdict));
        line.add("metric", validation.metric).add("difference", arm.equivalence.difference);
        line.add("seeds", validation.options.seeds).add("model", config.model.name).add("data", config.data.name);
        line.add("precision", arm.name).add("version", INVAR_VERSION);
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

std::optional<Remembered> recall(const fs::path& file, const Config& config) {
    std::error_code error;
    if (file.empty() || !fs::is_regular_file(file, error)) return std::nullopt;
    const Descriptor in = Descriptor::open(file, O_RDONLY, "read");
    const std::uint64_t size = in.size(), from = size > kMostRead ? size - kMostRead : 0;
    std::string text(static_cast<std::size_t>(size - from), '\0');
    in.read_at(from, text.data(), text.size());
    const std::string key = validation_key(config);
    std::optional<Remembered> found;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = std::string_view(text).substr(begin, end - begin);
        begin = end + 1;
        if (content.find(key) == content.npos) continue;
        const nlohmann::json line = nlohmann::json::parse(content, nullptr, false);
        if (!line.is_object() || line.value("key", nlohmann::json()) != key) continue;
        const std::optional<Verdict> verdict = parse_verdict(line.value("verdict", nlohmann::json()));
        if (verdict) found = Remembered{*verdict, plain_text(line, "date"), plain_text(line, "report")};
    }
    return found;
}

std::string validation_warning(const fs::path& file, const Config& config, const std::string& again) {
    if (!needs_validation(config)) return "";
    const std::string precision =
        is_of_its_own(config) ? kConfigured : Precision::parse(config.trainer.precision).name();
    const std::string what = fmt::format("{} for {} on {}", precision, config.model.name, config.data.name);
    const std::optional<Remembered> known = recall(file, config);
    if (!known) return fmt::format("{} was never validated here; find out first with: {}", what, again);
    if (known->verdict == Verdict::pass) return "";
    return fmt::format("{} was validated as {} on {} (see {}); try again with: {}", what, name_of(known->verdict),
                       known->date, known->report, again);
}

}  // namespace invar
