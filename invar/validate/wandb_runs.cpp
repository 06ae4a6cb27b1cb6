#include "invar/validate/wandb_runs.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/protobuf.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHeader = 7, kBlock = 32768;
constexpr std::string_view kFileStart = {":W&B\xe1\xbe\0", kHeader};
enum Part { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
enum RecordField { kHistory = 2, kConfig = 5, kRun = 17, kExit = 18 };

// The records of the file, put together from their parts.
class WandbRecords {
  public:
    WandbRecords(std::string_view file, const std::string& source) : file_(file), source_(source), at_(kHeader) {}

    bool next(std::string& record) {
        record.clear();
        for (bool begun = false;;) {
            if (const std::size_t left = kBlock - at_ % kBlock; left < kHeader) at_ += left;
            const std::string_view header = file_.substr(std::min(at_, file_.size()), kHeader);
            if (header.empty() && !begun) return false;
            if (header.size() < kHeader) return torn();
            const std::uint64_t length = little_endian_number(header.substr(4, 2));
            if (length > file_.size() - at_ - kHeader) return torn();
            const std::string_view data = file_.substr(at_ + kHeader, std::size_t(length));
            uLong sum = crc32(0, reinterpret_cast<const Bytef*>(header.data() + 6), 1);
            sum = crc32_z(sum, reinterpret_cast<const Bytef*>(data.data()), data.size());
            const int part = header[6];
            const bool fits = begun ? part == kMiddle || part == kLast : part == kFull || part == kFirst;
            check<IoError>(fits && sum == little_endian_number(header.substr(0, 4)),
                           "{}: the record at byte {} is damaged; use another copy of the file", source_, at_);
            record += data;
            at_ += kHeader + data.size();
            begun = true;
            if (part == kFull || part == kLast) return true;
        }
    }
    const std::string& note() const { return note_; }

  private:
    bool torn() {
        note_ = fmt::format("{} ends in the middle of a record, which is left out", source_);
        return false;
    }
    std::string_view file_;
    const std::string& source_;
    std::size_t at_;
    std::string note_;
};

struct Item {
    std::string key, value;  // the value as JSON
};

Item item_of(ProtobufReader reader) {
    Item item;
    while (reader.next()) {
        if (!reader.is_bytes()) continue;
        if (reader.field() == 1) item.key = reader.bytes();
        if (reader.field() == 2) item.key.append(item.key.empty() ? "" : ".").append(reader.bytes());
        if (reader.field() == 16) item.value = reader.bytes();
    }
    std::replace(item.value.begin(), item.value.end(), '\n', ' ');
    return item;
}

// A line of JSON for what was logged together.
std::string line_of(ProtobufReader history) {
    std::string line;
    const auto add = [&](std::string_view key, std::string_view value) {
        using Json = nlohmann::json;
        line += line.empty() ? "{" : ",";
        line += Json(key).dump(-1, ' ', true, Json::error_handler_t::replace);
        line.append(":").append(value.empty() ? "null" : value);
    };
    while (history.next()) {
        if (history.field() == 1 && history.is_bytes()) {
            const Item item = item_of(history.message());
            add(item.key, item.value);
        } else if (history.field() == 2 && history.is_bytes()) {
            for (ProtobufReader step = history.message(); step.next();)
                if (step.field() == 1 && step.is_number()) add("_step", std::to_string(std::int64_t(step.number())));
        }
    }
    return line.empty() ? "" : line + "}\n";
}

void take_seed(ProtobufReader config, FoundRun& run) {
    while (config.next()) {
        if (config.field() != 1 || !config.is_bytes()) continue;
        const Item item = item_of(config.message());
        double seed = 0.0;
        if ((item.key == "seed" || item.key == "random_seed") && parse_number(item.value, seed))
            if (seed == std::floor(seed) && std::fabs(seed) < 1e15) run.seed = std::int64_t(seed);
    }
}

fs::path history_in(const fs::path& folder) {
    std::error_code error;
    for (const char* name : {"wandb-history.jsonl", "files/wandb-history.jsonl"})
        if (fs::is_regular_file(folder / name, error)) return folder / name;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().extension() == ".wandb") return entry->path();
    return {};
}

fs::path summary_in(const fs::path& folder) {
    std::error_code ignored;
    for (const char* name : {"files/wandb-summary.json", "wandb-summary.json"})
        if (fs::is_regular_file(folder / name, ignored)) return folder / name;
    return {};
}

}  // namespace

FoundRun parse_wandb_file(std::string_view bytes, const std::string& source) {
    check<IoError>(bytes.starts_with(kFileStart), "{}: does not begin as a file of W&B's does", source);
    FoundRun run;
    run.unfinished = "it has no record of its end, so it was killed or still runs";
    std::string lines, record;
    WandbRecords records(bytes, source);
    while (records.next(record))
        for (ProtobufReader reader(record, source); reader.next();) {
            if (!reader.is_bytes()) continue;
            if (reader.field() == kHistory) lines += line_of(reader.message());
            if (reader.field() == kConfig) take_seed(reader.message(), run);
            if (reader.field() == kRun)
                for (ProtobufReader inner = reader.message(); inner.next();)
                    if (inner.field() == 4 && inner.is_bytes()) take_seed(inner.message(), run);
            if (reader.field() != kExit) continue;
            std::int64_t code = 0;
            for (ProtobufReader exit = reader.message(); exit.next();)
                if (exit.field() == 1 && exit.is_number()) code = std::int64_t(exit.number());
            run.unfinished = code == 0 ? "" : fmt::format("it ended with exit code {}", code);
        }
    check<IoError>(!lines.empty(), "{}: holds no history; nothing was logged in it", source);
    run.log = parse_json_log(lines, source);
    run.log.note = records.note();
    return run;
}

bool is_wandb_run(const fs::path& folder) {
    return !history_in(folder).empty() || !summary_in(folder).empty();
}

FoundRun read_wandb_run(const fs::path& path) {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    const fs::path history = is_folder ? history_in(path) : path, summary = is_folder ? summary_in(path) : fs::path();
    FoundRun run;
    if (history.extension() == ".wandb") {
        run = parse_wandb_file(read_file(history, kMaxLogBytes), history.string());
    } else if (!history.empty()) {
        run.log = parse_json_log(read_file(history, kMaxLogBytes), history.string());
    }
    if (summary.empty()) return run;
    RunLog last = parse_json_log(read_file(summary, kMaxLogBytes), summary.string());
    if (history.empty()) run.log.source = last.source;
    for (auto& [name, series] : last.series) run.log.series.emplace(name, std::move(series));
    return run;
}

}  // namespace invar
