#include "invar/validate/begun.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "invar/config/table.h"
#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/train/run_config.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "validation.json";
constexpr std::size_t kToldDifferences = 3;

Verdict verdict_named(const std::string& name) {
    for (const Verdict verdict : {Verdict::pass, Verdict::marginal, Verdict::fail})
        if (name_of(verdict) == name) return verdict;
    return Verdict::invalid;
}

}  // namespace

void BegunValidation::write(const fs::path& folder) const {
    Json json = {
        {"version", version}, {"candidates", candidates}, {"seeds", seeds}, {"metric", metric}, {"margin", margin}};
    json["starts"] = Json::object();
    for (const auto& [run, start] : starts) {
        Json metrics = Json::object();
        for (const Measured& measured : start.metrics) metrics[measured.metric.name] = measured.value;
        json["starts"][run] = {{"samples", start.samples}, {"metrics", metrics}};
    }
    json["broke"] = broke;
    json["judged"] = Json::array();
    for (const auto& [of, verdict] : judged) json["judged"].push_back({{"seeds", of}, {"verdict", name_of(verdict)}});
    json["config"] = config;
    write_file_atomically(folder / kFile, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

BegunValidation BegunValidation::read(const fs::path& folder, const std::vector<Metric>& metrics) {
    const fs::path file = folder / kFile;
    const Json json = Json::parse(read_file(file), nullptr, false);
    BegunValidation begun;
    try {
        begun.config = json.at("config");
        begun.candidates = json.at("candidates").get<std::vector<std::string>>();
        begun.seeds = json.at("seeds");
        begun.metric = json.at("metric");
        begun.margin = json.at("margin");
        begun.version = json.at("version");
        for (const auto& [run, start] : json.at("starts").items()) {
            Start& there = begun.starts[run];
            there.samples = start.at("samples");
            for (const Metric& metric : metrics) {
                const Json& value = start.at("metrics").at(metric.name);  // null: not finite
                there.metrics.push_back({metric, value.is_null() ? kUnknown : value.get<double>()});
            }
        }
        begun.broke = json.at("broke").get<std::map<std::string, std::string>>();
        for (const Json& each : json.at("judged")) begun.judged[each.at("seeds")] = verdict_named(each.at("verdict"));
    } catch (const nlohmann::json::exception&) {
        fail<IoError>("{} cannot be made sense of; start the validation again without --resume", file.string());
    }
    return begun;
}

bool is_validation(const fs::path& folder) {
    std::error_code ignored;
    return fs::is_regular_file(folder / kFile, ignored);
}

fs::path find_validation(const Config& base) {
    const fs::path wanted = fs::path(base.output_dir) / base.exp_name;
    fs::path found, path = wanted;
    std::error_code ignored;
    for (int i = 2; fs::is_directory(path, ignored); ++i) {
        if (is_validation(path)) found = path;
        path = wanted.string() + "_" + std::to_string(i);
    }
    check<UsageError>(!found.empty(),
                      "--resume: there is no validation in {} to go on with; start it without --resume, or name its "
                      "output_dir and exp_name",
                      wanted.string());
    return found;
}

fs::path make_validation_folder(const Config& base) {
    make_folders(base.output_dir);
    const fs::path wanted = fs::path(base.output_dir) / base.exp_name;
    fs::path path = wanted;
    std::error_code error;
    // create_directory tells a new folder from an old one, so two validations at once do not share one.
    for (int i = 2; !fs::create_directory(path, error); ++i) {
        check<IoError>(!error || fs::exists(path), "cannot make the folder {}: {}", path.string(), error.message());
        path = wanted.string() + "_" + std::to_string(i);
    }
    return path;
}

std::string what_differs(const Config& was, const Config& is, const std::vector<std::string>& kept) {
    std::vector<std::string> differences;
    for (const Field& field : config_fields()) {
        if (std::ranges::find(kept, field.key) != kept.end()) continue;
        const bool before = field.applies(was), now = field.applies(is);
        const std::string from = before ? field.print(was) : "not there", to = now ? field.print(is) : "not there";
        if ((before || now) && from != to)
            differences.push_back(fmt::format("{} was {} and is {}", field.key, from, to));
    }
    if (differences.size() > kToldDifferences) {
        const std::size_t more = differences.size() - kToldDifferences;
        differences.resize(kToldDifferences);
        differences.push_back(fmt::format("and {} more", more));
    }
    return fmt::format("{}", fmt::join(differences, ", "));
}

void check_same(const BegunValidation& begun, const ValidateOptions& options, const fs::path& folder) {
    const std::string differs =
        what_differs(parse_config(begun.config, (folder / kFile).string()), options.base, {"output_dir", "exp_name"});
    check<UsageError>(differs.empty(),
                      "--resume: the validation in {} is of another configuration: {}; give the same one, or start "
                      "another validation without --resume",
                      folder.string(), differs);
    check<UsageError>(options.seeds >= begun.seeds,
                      "--seeds {}: the validation in {} is of {} seeds, and none of them may be left out; ask for {} "
                      "or more",
                      options.seeds, folder.string(), begun.seeds, begun.seeds);
    for (const std::string& candidate : begun.candidates)
        check<UsageError>(std::ranges::find(options.candidates, candidate) != options.candidates.end(),
                          "--candidates: the validation in {} is of {} too; name it again, or leave --candidates out",
                          folder.string(), candidate);
}

BegunRun look_at_run(const fs::path& folder, const Config& wanted) {
    BegunRun run;
    if (!RunFolder::is_run(folder)) return run;  // not begun, or killed before anything was written
    const Config was = parse_config(read_run_config(folder).yaml, RunFolder::config_of(folder).string());
    const std::string differs = what_differs(was, wanted, {"output_dir", "exp_name"});
    check<UsageError>(differs.empty(),
                      "--resume: {} holds a run of another configuration: {}; move it away to have it trained again",
                      folder.string(), differs);
    run.state = BegunRun::State::begun;
    const nlohmann::json summary = read_summary(RunFolder::summary_of(folder));
    if (!summary.is_object()) return run;
    const auto text = [&](const char* key) {
        const auto found = summary.find(key);
        return found != summary.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    if (const std::string status = text("status"); status == "finished")
        run.state = BegunRun::State::finished;
    else if (status == "unstable" && !text("failure").empty())
        run.state = BegunRun::State::unstable;
    run.failure = text("failure");
    run.names_command = run.failure != text("failure_reason");
    run.stopped_early = text("stopped_early");
    if (const auto steps = summary.find("steps"); steps != summary.end() && steps->is_number_integer())
        run.steps = steps->get<std::int64_t>();
    return run;
}

}  // namespace invar
