#include "invar/validate/event_runs.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/event_log.h"
#include "invar/io/file.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSplits[] = {"train", "validation", "val", "eval", "test"};

// In the order of their names, which begin with the time.
std::vector<fs::path> event_files(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code error, ignored;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (is_event_file(entry->path()) && entry->is_regular_file(ignored)) files.push_back(entry->path());
    std::sort(files.begin(), files.end());
    return files;
}

void add_files(RunLog& log, const std::vector<fs::path>& files, const std::string& split) {
    EventLog events;
    for (const fs::path& file : files) events.add(read_file(file, kMaxLogBytes), file.string());
    if (!events.note().empty()) log.note = events.note();
    for (const auto& [tag, points] : events.scalars()) {
        if (points.empty()) continue;
        // Keras calls the figures of an epoch epoch_loss, as if it were about epochs.
        std::string_view name = tag;
        if (!split.empty() && name.starts_with("epoch_")) name.remove_prefix(6);
        Series& series = log.series[split.empty() ? printable(name) : split + "/" + printable(name)];
        series = {};
        for (const auto& [step, value] : points) series.x.push_back(double(step)), series.y.push_back(value);
    }
}

}  // namespace

bool is_event_run(const fs::path& folder) {
    if (!event_files(folder).empty()) return true;
    const auto has = [&](const char* split) { return !event_files(folder / split).empty(); };
    return has(kSplits[0]) && std::any_of(std::begin(kSplits) + 1, std::end(kSplits), has);
}

RunLog read_event_run(const fs::path& path) {
    RunLog log;
    log.source = path.string();
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
        add_files(log, {path}, "");
    } else {
        add_files(log, event_files(path), "");
        for (const char* split : kSplits) add_files(log, event_files(path / split), split);
    }
    check<IoError>(!log.series.empty(), "{}: holds no scalars, which are what is compared of event files", log.source);
    return log;
}

}  // namespace invar
