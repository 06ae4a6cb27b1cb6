// Where runs lie on disk: which file of a folder is its log, and what stands beside it.
#include "invar/validate/run_files.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "invar/amp/precision.h"
#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/io/event_log.h"
#include "invar/io/file.h"
#include "invar/train/logged_names.h"
#include "invar/validate/event_runs.h"
#include "invar/validate/mlflow_runs.h"
#include "invar/validate/wandb_chart.h"
#include "invar/validate/wandb_runs.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kLogNames[] = {"metrics.jsonl", "metrics.csv", "trainer_state.json", "log.jsonl",
                                          "metrics.json"};
constexpr int kMaxDepth = 4;  // Lightning's logs/NAME/lightning_logs/version_0/metrics.csv, seen from logs/..

fs::path log_in(const fs::path& folder) {
    std::error_code ignored;
    for (const std::string_view name : kLogNames)
        if (fs::is_regular_file(folder / name, ignored)) return folder / name;
    return {};
}

std::vector<fs::path> children_of(const fs::path& folder) {
    std::vector<fs::path> children;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (!entry->path().filename().string().starts_with('.')) children.push_back(entry->path());
    // version_2 before version_10: digits count as numbers.
    const auto key = [](const fs::path& path) {
        std::vector<std::pair<unsigned long long, std::string>> parts(1);
        for (const char c : path.filename().string()) {
            if (std::isdigit(static_cast<unsigned char>(c)) != 0)
                parts.back().first = std::min(parts.back().first * 10 + unsigned(c - '0'), 1'000'000'000ull);
            else
                parts.emplace_back(0, std::string(1, c));
        }
        return parts;
    };
    std::sort(children.begin(), children.end(), [&](const fs::path& a, const fs::path& b) {
        const auto ka = key(a), kb = key(b);
        return ka != kb ? ka < kb : a < b;
    });
    return children;
}

// "out/checkpoint-500", or the state in it -> "out" and 500.
std::optional<std::pair<fs::path, double>> checkpoint_of(const fs::path& run) {
    const fs::path folder = run.filename() == "trainer_state.json" ? run.parent_path() : run;
    const std::string name = folder.filename().string();
    constexpr std::string_view kPrefix = "checkpoint-";
    double step = 0.0;
    std::error_code ignored;
    if (!name.starts_with(kPrefix) || !parse_number(name.substr(kPrefix.size()), step) ||
        !fs::is_regular_file(folder / "trainer_state.json", ignored))
        return std::nullopt;
    return std::pair(fs::absolute(folder).lexically_normal().parent_path(), step);
}

// The state that Hugging Face saves with a checkpoint holds the log from the start, so the last one holds the others.
void keep_last_checkpoints(std::vector<fs::path>& runs) {
    std::map<fs::path, double> last;
    for (const fs::path& run : runs)
        if (const auto found = checkpoint_of(run)) {
            const auto [at, is_new] = last.emplace(*found);
            at->second = std::max(at->second, found->second);
        }
    std::erase_if(runs, [&](const fs::path& run) {
        const auto found = checkpoint_of(run);
        return found && found->second < last.at(found->first);
    });
}

// The runs of a file that is a chart of W&B's; nothing of any other. Only an ordinary file can be looked at twice.
std::vector<std::string> chart_runs(const fs::path& file) {
    constexpr std::uint64_t kMostHeader = std::uint64_t(4) << 20;
    std::error_code ignored;
    if (file.extension() != ".csv" || !fs::is_regular_file(file, ignored)) return {};
    const Descriptor opened = Descriptor::open(file, O_RDONLY, "read");
    std::string text(std::size_t(std::min(opened.size(), kMostHeader)), '\0');
    opened.read_at(0, text.data(), text.size());
    return is_wandb_chart(text) ? runs_in_chart(text) : std::vector<std::string>();
}

// "export.csv:NAME" of a chart -> the file and the name, or pattern of names.
std::optional<std::pair<fs::path, std::string>> run_in_chart(const fs::path& path) {
    const std::string text = path.string();
    std::error_code ignored;
    if (fs::exists(path, ignored)) return std::nullopt;
    for (std::size_t at = text.find(':'); at != text.npos; at = text.find(':', at + 1))
        if (const fs::path file = text.substr(0, at); !chart_runs(file).empty())
            return std::pair(file, text.substr(at + 1));
    return std::nullopt;
}

void add_file(const fs::path& file, const std::string& pattern, std::vector<fs::path>& runs) {
    const std::vector<std::string> names = chart_runs(file);
    const std::size_t before = runs.size();
    for (const std::string& name : names)
        if (name == pattern || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0)
            runs.push_back(file.string() + ":" + name);
    if (names.empty()) runs.push_back(file);
    check<UsageError>(runs.size() > before, "{}: no run in it is called {}{}; there are {}", file.string(), pattern,
                      did_you_mean(pattern, names), fmt::join(names, ", "));
}

bool is_run(const fs::path& folder) {
    return !log_in(folder).empty() || is_mlflow_run(folder) || is_wandb_run(folder) || is_event_run(folder);
}

void collect(const fs::path& folder, int depth, std::vector<fs::path>& runs) {
    std::error_code ignored;
    if (!log_in(folder).empty()) {
        runs.push_back(folder);
        return;
    }
    const std::vector<fs::path> children = children_of(folder);
    // What else lies beside the checkpoints of Hugging Face's trainer is of the same run.
    const std::size_t before = runs.size();
    for (const fs::path& child : children)
        if (checkpoint_of(child)) runs.push_back(child);
    if (runs.size() > before) return;
    if (is_run(folder)) {
        runs.push_back(folder);
        return;
    }
    if (depth == kMaxDepth) return;
    for (const fs::path& child : children) {
        const std::string extension = child.extension().string();
        if (fs::is_directory(child, ignored) && !fs::is_symlink(child, ignored))
            collect(child, depth + 1, runs);
        else if ((extension == ".csv" || extension == ".jsonl") && fs::is_regular_file(child, ignored))
            add_file(child, "*", runs);
    }
}

std::optional<std::int64_t> whole(double value) {
    if (value != std::floor(value) || !(std::fabs(value) < 1e15)) return std::nullopt;
    return std::int64_t(value);
}

// "runs/x_seed7/metrics.csv" -> 7
std::optional<std::int64_t> seed_in(const std::string& path) {
    const std::size_t at = path.rfind("seed");
    if (at == path.npos) return std::nullopt;
    std::size_t begin = at + 4;
    while (begin < path.size() && (path[begin] == '_' || path[begin] == '-' || path[begin] == '=')) ++begin;
    std::size_t end = begin;
    while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end])) != 0) ++end;
    if (end == begin || end - begin > 15) return std::nullopt;
    return std::stoll(path.substr(begin, end - begin));
}

std::string read_log(const fs::path& file) {
    return read_file(file, kMaxLogBytes);
}

// Of a log that was put together from several files, or is a part of one.
std::size_t digest_of(const RunLog& log) {
    std::string all;
    for (const auto& [name, series] : log.series) {
        all += name;
        for (const auto* numbers : {&series.x, &series.y})
            all.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(double));
    }
    return std::hash<std::string>()(all);
}

// The top-level `seed:` of a YAML file, as Lightning's hparams.yaml has it; W&B's config.yaml has `value:` below it.
std::optional<std::int64_t> seed_of_yaml(const fs::path& file) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return std::nullopt;
    const std::string text = "\n" + read_log(file);
    for (const char* key : {"\nseed:", "\nseed_everything:", "\nrandom_seed:"}) {
        const std::size_t at = text.find(key);
        if (at == text.npos) continue;
        std::size_t begin = at + std::string_view(key).size();
        double value = 0.0;
        while (text.compare(begin, 3, "\n  ") == 0) {  // lines below it
            const std::size_t word = text.find_first_not_of(" \n", begin);
            const bool is_value = word != text.npos && text.compare(word, 6, "value:") == 0;
            begin = is_value ? word + 6 : std::min(text.find('\n', begin + 1), text.size());
        }
        if (parse_number(std::string_view(text).substr(begin, text.find('\n', begin) - begin), value))
            return whole(value);
    }
    return std::nullopt;
}

// Of a run that changed its precision every one is named, in order, and said where the last had few of the steps.
void name_precisions(FoundRun& run, const nlohmann::json& summary) {
    const auto found = summary.find("precision_by_step"), total = summary.find("steps");
    if (found == summary.end() || !found->is_object() || total == summary.end() || !total->is_number()) return;
    const double steps = total->get<double>();
    std::map<double, std::string> by_step;
    for (const auto& [step, name] : found->items())
        if (double at = 0.0; parse_number(step, at) && at < steps && name.is_string()) by_step[at] = name;
    std::vector<std::pair<double, std::string>> spans;
    for (const auto& span : by_step)
        if (spans.empty() || spans.back().second != span.second) spans.push_back(span);
    if (spans.size() < 2) return;
    run.precision = spans.front().second;
    for (std::size_t i = 1; i < spans.size(); ++i) run.precision += " then " + spans[i].second;
    constexpr double kFew = 0.25;
    const double last = steps - spans.back().first;
    if (last < kFew * steps)
        run.hardly_in_last = fmt::format("only the last {:.0f} of its {:.0f} steps {} in {}", last, steps,
                                         last == 1 ? "was" : "were", spans.back().second);
}

void add_summary(FoundRun& run, const fs::path& file) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return;
    const std::string text = read_log(file);
    run.digest ^= 31 * std::hash<std::string>()(text);
    const RunLog summary = parse_json_log(text, file.string());
    // What the run itself logged over its steps stays; figures of the whole run (speed, memory) come from here.
    for (const auto& [name, series] : summary.series) {
        const bool curve = run.log.series.contains(name) && run.log.series.at(name).y.size() > 1;
        const bool whole_run = name == logged::kSamplesPerS || name == "tokens_per_s" || name == logged::kMfu ||
                               name.starts_with(logged::kPeakBytes);
        if (!curve || whole_run) run.log.series[name] = series;
    }
    const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    if (!value.is_object()) return;
    if (const auto found = value.find("precision"); found != value.end() && found->is_string())
        run.precision = found->get<std::string>();
    name_precisions(run, value);
    // Its curve holds the steps that were logged.
    if (const auto found = value.find("max_grad_norm"); found != value.end() && found->is_number())
        run.max_grad_norm = found->get<double>();
    if (const auto found = value.find("all_finite"); found != value.end() && *found == false)
        run.not_finite = "NaN or Inf in the losses or weights";
    for (int i = 1; value.contains(fmt::format("recovery_{}", i)); ++i) {
        const nlohmann::json& each = value.at(fmt::format("recovery_{}", i));
        if (!each.is_object()) break;
        const auto text = [&](const char* key) {
            const auto found = each.find(key);
            return found == each.end()  ? std::string("?")
                   : found->is_string() ? found->get<std::string>()
                                        : found->dump();
        };
        run.recoveries.push_back(fmt::format("at step {}: {}; back to step {} and on in {}{}", text("failed_at"),
                                             text("reason"), text("back_to"), text("to"),
                                             each.contains("setting") ? " with " + text("setting") : ""));
    }
    const nlohmann::json status = value.value("status", nlohmann::json());
    if (status == "unstable")
        run.not_finite = "it was stopped as unstable";
    else if (status.is_string() && status != "finished")
        run.unfinished = fmt::format("its summary.json says {}", status.get<std::string>().substr(0, 80));
}

// What Hugging Face's trainer meant to do, and how far it got.
void look_for_an_end(FoundRun& run, const std::string& text) {
    if (text.find("\"log_history\"") == text.npos || text.find("\"max_steps\"") == text.npos) return;
    const nlohmann::json state = nlohmann::json::parse(text, nullptr, false);
    if (!state.is_object()) return;
    const auto number = [&](const char* key) {
        const auto found = state.find(key);
        return found != state.end() && found->is_number() ? found->get<double>() : 0.0;
    };
    if (number("global_step") > 0 && number("global_step") < number("max_steps"))
        run.unfinished = fmt::format("it is at step {:.0f} of {:.0f}", number("global_step"), number("max_steps"));
}

}  // namespace

std::vector<fs::path> find_runs(const fs::path& path) {
    std::error_code error;
    std::vector<fs::path> runs;
    if (const auto part = run_in_chart(path)) {
        add_file(part->first, part->second, runs);
        return runs;
    }
    const fs::path meant = mlflow_run_of(path);
    const fs::file_status status = fs::status(meant, error);
    check<UsageError>(fs::exists(status), "{}: there is no such file or folder", path.string());
    if (fs::is_directory(status))
        collect(meant, 0, runs);
    else
        add_file(meant, "*", runs);
    check<UsageError>(
        !runs.empty(),
        "{}: no run in it; a run has metrics.jsonl, metrics.csv, trainer_state.json, TensorBoard's event files, W&B's "
        "history or MLflow's metrics, or is itself a .csv or .jsonl file",
        path.string());
    keep_last_checkpoints(runs);
    return runs;
}

std::vector<fs::path> find_runs(const std::vector<std::string>& paths) {
    std::vector<fs::path> all;
    for (const std::string& path : paths)
        for (const fs::path& run : find_runs(fs::path(path))) all.push_back(run);
    keep_last_checkpoints(all);
    return all;
}

namespace {

// A chart that is no ordinary file, and so was not taken apart: it can be one run only.
std::string only_run(std::string_view text, const std::string& file) {
    const std::vector<std::string> runs = runs_in_chart(text);
    check<UsageError>(runs.size() == 1, "{}: holds the runs {}; save it as a file whose name ends in .csv", file,
                      fmt::join(runs, ", "));
    return runs.front();
}

// Where the log is not one file of text that stands for the run.
std::optional<FoundRun> read_others_run(const fs::path& path) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    FoundRun run;
    if (const auto part = run_in_chart(path))
        run.log = parse_chart_run(read_log(part->first), part->second, part->first.string());
    else if (is_folder && !log_in(path).empty())
        return std::nullopt;
    else if (is_folder && is_mlflow_run(path))
        run = read_mlflow_run(path);
    else if (is_folder ? is_wandb_run(path) : path.extension() == ".wandb")
        run = read_wandb_run(path);
    else if (is_folder || is_event_file(path))
        run.log = read_event_run(path);
    else
        return std::nullopt;
    run.digest = digest_of(run.log);
    return run;
}

void find_seed(FoundRun& run, const fs::path& path, const fs::path& folder, bool own_folder) {
    if (const auto seed = run.log.series.find("seed"); !run.seed && seed != run.log.series.end())
        run.seed = whole(seed->second.y.back());
    for (const char* file : {"hparams.yaml", "config.yaml", "files/config.yaml"})
        if (!run.seed && own_folder) run.seed = seed_of_yaml(folder / file);
    if (!run.seed) run.seed = seed_in(path.string());
}

}  // namespace

FoundRun read_run(const fs::path& path) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    if (std::optional<FoundRun> others = read_others_run(path)) {
        find_seed(*others, path, path, is_folder);
        return *others;
    }
    const fs::path folder = is_folder ? path : path.parent_path();
    const fs::path file = is_folder ? log_in(path) : path;
    FoundRun run;
    const std::string text = read_log(file);
    if (is_wandb_chart(text)) {
        run.log = parse_chart_run(text, only_run(text, file.string()), file.string());
        run.digest = digest_of(run.log);
    } else {
        run.log = parse_log(text, file.string());
        run.digest = std::hash<std::string>()(text);
    }
    look_for_an_end(run, text);
    // Beside a file that was named alone other files may belong to other runs.
    const bool own_folder = is_folder || std::find(std::begin(kLogNames), std::end(kLogNames),
                                                   file.filename().string()) != std::end(kLogNames);
    if (own_folder) {
        add_summary(run, folder / "summary.json");
        if (fs::is_regular_file(folder / "config.yaml", error)) run.config = folder / "config.yaml";
        // A run of ours that was killed, or is still at work, has everything but this.
        if (!run.config.empty() && file.filename() == "metrics.jsonl" &&
            fs::is_directory(folder / "checkpoints", error) && !fs::exists(folder / "summary.json", error))
            run.unfinished = "it has no summary.json, so it was killed or still runs";
    }
    find_seed(run, path, folder, own_folder);
    return run;
}

RunRecord record_of(const FoundRun& found, const std::string& metric, Better direction, Take take) {
    RunRecord run = record_of(found.log, metric, direction, take);
    run.precision = found.precision;
    run.seed = found.seed;
    run.recoveries = found.recoveries;
    if (!found.precision.empty()) run.folder = found.config.parent_path();
    if (run.not_finite.empty()) run.not_finite = found.not_finite;
    if (std::isfinite(found.max_grad_norm) && !(found.max_grad_norm <= run.max_grad_norm))
        run.max_grad_norm = found.max_grad_norm;
    return run;
}

}  // namespace invar
