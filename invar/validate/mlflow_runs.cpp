#include "invar/validate/mlflow_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/file.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/validate/csv_records.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxDepth = 8;  // of folders in metrics/
constexpr std::uint64_t kMostSmallBytes = 1 << 20;

std::string small_file(const fs::path& file) {
    std::error_code ignored;
    return fs::is_regular_file(file, ignored) ? read_file(file, kMostSmallBytes) : "";
}

// The value of a line `key: value` of meta.yaml.
std::string meta(const fs::path& folder, const std::string& key) {
    const std::string text = fmt::format("\n{}", small_file(folder / "meta.yaml")), wanted = fmt::format("\n{}:", key);
    const std::size_t at = text.find(wanted);
    if (at == text.npos) return "";
    const std::size_t begin = at + wanted.size();
    return std::string(trimmed(std::string_view(text).substr(begin, text.find('\n', begin) - begin)));
}

std::string why_unfinished(const std::string& status) {
    static const std::map<std::string, std::string> kNames = {
        {"1", "RUNNING"}, {"2", "SCHEDULED"}, {"4", "FAILED"}, {"5", "KILLED"}};
    const auto found = kNames.find(status);
    return found == kNames.end() ? "" : fmt::format("its meta.yaml says {}", found->second);
}

}  // namespace

bool is_mlflow_run(const fs::path& folder) {
    std::error_code ignored;
    return fs::is_directory(folder / "metrics", ignored) && fs::is_regular_file(folder / "meta.yaml", ignored) &&
           meta(folder, "lifecycle_stage") != "deleted";
}

fs::path mlflow_run_of(const fs::path& path) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    for (fs::path at = whole; at.has_relative_path(); at = at.parent_path())
        if (at.filename() == "metrics" && is_mlflow_run(at.parent_path())) return at.parent_path();
    return path;
}

Series parse_mlflow_metric(std::string_view text, const std::string& source, std::string& note) {
    struct Value {
        double time, step, value;
    };
    std::vector<Value> values;
    std::size_t begin = 0;
    for (std::size_t line = 1; begin < text.size(); ++line) {
        const std::size_t end = text.find('\n', begin);
        if (end == text.npos && line > 1) {
            note = fmt::format("{} ends in the middle of line {}, which is left out", source, line);
            break;
        }
        const std::string content(trimmed(text.substr(begin, end - begin)));
        begin = std::min(end, text.size() - 1) + 1;
        if (content.empty()) continue;
        std::istringstream words(content);
        std::string time, value, step = "0";
        words >> time >> value >> step;
        Value read{};
        check<IoError>(parse_number(time, read.time) && parse_number(value, read.value) &&
                           parse_number(step.empty() ? "0" : step, read.step) && std::isfinite(read.time) &&
                           std::isfinite(read.step),
                       "{} line {}: {} is not MLflow's `timestamp value step`", source, line, Quoted{content});
        values.push_back(read);
    }
    std::stable_sort(values.begin(), values.end(), [](const Value& a, const Value& b) {
        return std::pair(a.step, a.time) < std::pair(b.step, b.time);
    });
    Series series;
    const bool counted = !values.empty() && values.front().step == values.back().step;
    for (const Value& value : values) {
        const double x = counted ? double(series.x.size() + 1) : value.step;
        if (!series.x.empty() && series.x.back() == x) series.x.pop_back(), series.y.pop_back();
        series.x.push_back(x);
        series.y.push_back(value.value);
    }
    if (series.x.size() == 1) series.x[0] = values.back().step;
    return series;
}

FoundRun read_mlflow_run(const fs::path& folder) {
    FoundRun run;
    run.log.source = folder.string();
    const fs::path metrics = folder / "metrics";
    std::error_code error;
    std::vector<fs::path> files;
    for (fs::recursive_directory_iterator entry(metrics, error), end; !error && entry != end; entry.increment(error)) {
        std::error_code ignored;
        if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
        if (entry->is_regular_file(ignored) && !entry->path().filename().string().starts_with('.'))
            files.push_back(entry->path());
    }
    check<IoError>(!error, "{}: cannot be read ({})", metrics.string(), error.message());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
        const std::string name = printable(file.lexically_relative(metrics).generic_string());
        Series series = parse_mlflow_metric(read_file(file, kMaxLogBytes), file.string(), run.log.note);
        if (!series.empty()) run.log.series.emplace(name, std::move(series));
    }
    check<IoError>(!run.log.series.empty(), "{}: no metric in it has a value", metrics.string());
    run.unfinished = why_unfinished(meta(folder, "status"));
    for (const char* key : {"seed", "random_seed", "seed_everything"})
        if (double seed = 0.0; !run.seed && parse_number(small_file(folder / "params" / key), seed))
            if (seed == std::floor(seed) && std::fabs(seed) < 1e15) run.seed = std::int64_t(seed);
    return run;
}

}  // namespace invar
