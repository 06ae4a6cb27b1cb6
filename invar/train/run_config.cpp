#include "invar/train/run_config.h"

#include "invar/config/yaml.h"
#include "invar/core/error.h"
#include "invar/io/checkpoint.h"
#include "invar/io/file.h"
#include "invar/train/run_folder.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kComplete = "# complete\n";

// What has become of the file; "" where it is as it was written, or as somebody edited it.
std::string damage_of(const std::string& yaml) {
    if (yaml.empty()) return "is empty";
    if (!yaml.ends_with(kComplete)) return "is cut off: its last line is not '# complete'";
    try {
        parse_yaml(yaml, "config.yaml");
    } catch (const UsageError&) {
        return "is not YAML any more";
    }
    return "";
}

}  // namespace

std::string run_config_text(const Config& config) {
    return to_yaml(config).append(kComplete);
}

std::string run_config_damage(const fs::path& folder) {
    const fs::path file = RunFolder::config_of(folder);
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return "is missing";
    if (!fs::is_regular_file(file, ignored)) return "is not an ordinary file";
    if (fs::file_size(file, ignored) > kMaxConfigBytes) return "is larger than a configuration can be";
    return damage_of(read_file(file));
}

RunConfig read_run_config(const fs::path& folder) {
    const fs::path file = RunFolder::config_of(folder);
    std::error_code ignored;
    const bool exists = fs::exists(file, ignored);
    const std::string damage = run_config_damage(folder);
    if (damage.empty()) return {read_file(file), ""};

    const LatestCheckpoint latest = CheckpointFolder(RunFolder::checkpoints_of(folder), 1).latest();
    latest.check_usable(folder);
    check<UsageError>(bool(latest) || exists,
                      "{}: not the folder of a run: it has no config.yaml; where its run was killed at once, start it "
                      "again as before",
                      folder.string());
    check<UsageError>(bool(latest),
                      "{} {}, and there is no checkpoint that holds the configuration; start the run again",
                      file.string(), damage);
    const nlohmann::json state = load_checkpoint(latest.path).state;
    check<IoError>(state.contains("config") && state.at("config").is_string(),
                   "{}: the checkpoint holds no configuration", latest.path.string());
    return {state.at("config").get<std::string>(),
            fmt::format("{} {}; taking the configuration inside {}", file.string(), damage, latest.path.string())};
}

}  // namespace invar
