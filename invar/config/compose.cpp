// Composition as in Hydra: a file with its `defaults:`, the group files picked on the command line, then single values.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "invar/config/folder_keys.h"
#include "invar/config/interpolate.h"
#include "invar/config/keys.h"
#include "invar/config/tree.h"
#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/io/file.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommandLine = "command line";
constexpr int kMaxDefaultsDepth = 8;

std::string read_config_file(const fs::path& path) {
    try {
        return read_file(path, kMaxConfigBytes);
    } catch (const IoError& error) {
        throw UsageError(error.what());
    }
}

// A line of a `defaults:` list: the file itself, a file of the same group, or a choice for a group.
struct Default {
    std::string group;
    std::string name;  // "" for none (null)
    bool is_self = false;
    std::string origin;
};

Default parse_default(const YamlNode& item, const std::string& group, const std::string& file) {
    const std::string origin = fmt::format("{}:{}", file, item.line);
    if (item.kind == YamlNode::Kind::scalar) return {group, item.text, item.text == "_self_", origin};
    const bool good = item.kind == YamlNode::Kind::map && item.items.size() == 1 &&
                      (item.items[0].kind == YamlNode::Kind::scalar || item.items[0].kind == YamlNode::Kind::null);
    check<UsageError>(good, "{}: an entry of defaults: is '- GROUP: NAME', '- NAME' or '- _self_'", origin);
    std::string key = item.keys[0];
    for (const std::string_view prefix : {"override ", "/"})  // as Hydra's experiment files have it
        if (key.starts_with(prefix)) key.erase(0, prefix.size());
    const std::vector<std::string> groups = config_groups();
    check<UsageError>(std::find(groups.begin(), groups.end(), key) != groups.end(),
                      "{}: unknown group '{}' under defaults:{}; the groups are {}", origin, key.substr(0, 80),
                      did_you_mean(key, groups), fmt::join(groups, ", "));
    return {key, item.items[0].text, false, origin};
}

// Values in files of these groups stand for the whole configuration, not for a section.
std::string section_of(const std::string& group) {
    return group == "experiment" ? "" : group;
}

class Composer {
  public:
    explicit Composer(const ConfigSources& sources) : sources_(sources) {}

    // Folders beside a configuration file come before the ones that ship.
    void search_first(const fs::path& folder) { sources_.config_dirs.insert(sources_.config_dirs.begin(), folder); }

    // `decided`: groups that somebody above has chosen for; choices for them in this file do not count.
    void add_file(const fs::path& path, const std::string& group, std::set<std::string> decided, int depth = 0) {
        const std::string file = path.string();
        check<UsageError>(depth < kMaxDefaultsDepth,
                          "{}: defaults: nest deeper than {} files; is one including itself?", file, kMaxDefaultsDepth);
        YamlNode root = parse_yaml(read_config_file(path), file);
        const std::vector<Default> defaults = take_defaults(root, group, file);
        // What this file does not choose itself is open to the files it includes.
        std::set<std::string> below = decided;
        for (const Default& entry : defaults)
            if (!entry.is_self && entry.group != group) below.insert(entry.group);
        bool self_done = false;
        for (const Default& entry : defaults) {
            if (entry.is_self) {
                check<UsageError>(!self_done, "{}: _self_ is listed twice", entry.origin);
                add_own(root, group, file);
                self_done = true;
            } else if (entry.group != group && decided.contains(entry.group)) {
                if (!entry.name.empty()) not_taken_.insert(entry.group);
            } else if (!entry.name.empty()) {
                pick(entry.group, entry.name, entry.origin, below, depth + 1);
            }
        }
        if (!self_done) add_own(root, group, file);
    }

    void add(const std::vector<Setting>& settings, const std::vector<UnknownKey>& unknown = {}) {
        settings_.insert(settings_.end(), settings.begin(), settings.end());
        unknown_.insert(unknown_.end(), unknown.begin(), unknown.end());
    }

    // A file of the group; or, where there is none, the registered part of that name.
    void pick(const std::string& group, const std::string& name, const std::string& origin,
              const std::set<std::string>& decided, int depth = 0) {
        std::string bare = name;
        if (bare.ends_with(".yaml")) bare.resize(bare.size() - 5);
        const std::vector<std::string> choices = config_choices(group, sources_), parts = part_names(group);
        if (std::ranges::find(choices, bare) == choices.end()) refuse(group, bare, choices, origin);
        for (const fs::path& folder : sources_.config_dirs) {
            const fs::path path = folder / group / (bare + ".yaml");
            std::error_code error;
            if (fs::is_regular_file(path, error)) return add_file(path, group, decided, depth);
        }
        if (std::ranges::find(parts, bare) == parts.end()) refuse(group, bare, choices, origin);
        YamlNode value;
        value.kind = YamlNode::Kind::scalar;
        value.text = bare;
        add({{group + ".name", "", value, origin}});
    }

    // Groups of which some file has chosen one that was not taken, since they were decided above it.
    const std::set<std::string>& not_taken() const { return not_taken_; }

    // From here on it is the command line that is added.
    void end_of_files() { files_end_ = settings_.size(); }

    Config build() {
        Config config;
        Origins origins;
        const auto words = settings_.begin() + std::ptrdiff_t(files_end_);
        // Where the command line chooses another part, what files say of the one it replaces goes with that.
        for (auto word = words; word != settings_.end(); ++word)
            for (auto setting = settings_.begin(); setting != words && word->key.ends_with(".name"); ++setting)
                if (setting->key.starts_with(word->key.substr(0, word->key.size() - 4))) setting->if_it_fits = true;
        const std::vector<Setting> all =
            with_folder_keys({settings_.begin(), words}, {words, settings_.end()}, sources_);
        refuse_unknown(unknown_, all);
        apply(all, config, origins);
        check_together(config, origins);
        return config;
    }

  private:
    static std::vector<Default> take_defaults(YamlNode& root, const std::string& group, const std::string& file) {
        std::vector<Default> defaults;
        const auto key = std::find(root.keys.begin(), root.keys.end(), "defaults");
        if (key == root.keys.end()) return defaults;
        const auto list = root.items.begin() + (key - root.keys.begin());
        check<UsageError>(list->kind == YamlNode::Kind::list || list->kind == YamlNode::Kind::null,
                          "{}:{}: defaults: is a list, such as '- trainer: fp16_safe'", file, list->line);
        check<UsageError>(list->items.size() <= 32, "{}:{}: defaults: has more than 32 entries", file, list->line);
        for (const YamlNode& item : list->items) defaults.push_back(parse_default(item, group, file));
        root.items.erase(list);
        root.keys.erase(key);
        return defaults;
    }

    void add_own(const YamlNode& root, const std::string& group, const std::string& file) {
        add(flatten(root, "", section_of(group), file, unknown_));
    }

    [[noreturn]] void refuse(const std::string& group, const std::string& name, const std::vector<std::string>& choices,
                             const std::string& origin) const {
        std::vector<std::string> folders;
        for (const fs::path& folder : sources_.config_dirs) folders.push_back((folder / group).string());
        const std::string shown = find_non_text(name) == std::string::npos ? name.substr(0, 80) : "?";
        if (choices.empty())
            fail<UsageError>("{}: there is no {} '{}': no files in {}", origin, group, shown, fmt::join(folders, ", "));
        fail<UsageError>("{}: there is no {} '{}'{}; there are {} (in {})", origin, group, shown,
                         did_you_mean(name, choices), fmt::join(choices, ", "), fmt::join(folders, ", "));
    }

    ConfigSources sources_;
    std::vector<Setting> settings_;
    std::vector<UnknownKey> unknown_;
    std::size_t files_end_ = 0;
    std::set<std::string> not_taken_;
};

// What the command line asks for: files of groups, and single values.
struct CommandLine {
    std::vector<std::pair<std::string, std::string>> picks;  // one a group; "" for no file of it
    std::vector<Setting> settings;
    std::vector<UnknownKey> unknown;
    std::vector<std::string> taken_back;  // groups whose choice some file must have made
};

YamlNode parse_argument_value(const std::string& text, const std::string& argument) {
    const bool structured = !text.empty() && std::string_view("[{\"'").find(text[0]) != std::string_view::npos;
    if (structured) return parse_yaml(text, fmt::format("{} '{}'", kCommandLine, argument.substr(0, 80)));
    YamlNode node;
    if (text.empty() || text == "null" || text == "~") return node;
    node.kind = YamlNode::Kind::scalar;
    node.text = text;
    return node;
}

// "key=" gives a text that is empty, which other values cannot be: more likely a variable of a script was.
void refuse_nothing(const std::vector<Setting>& settings, const std::string& argument) {
    for (const Setting& setting : settings)
        for (const Field& field : config_fields())
            check<UsageError>(field.key != setting.key || field.details.type == type_name(std::string{}),
                              "{}: '{}' gives no value; ~{} takes the key back, {}=null sets its default", kCommandLine,
                              argument.substr(0, 80), setting.key, setting.key);
}

CommandLine parse_command_line(const std::vector<std::string>& overrides) {
    const std::vector<std::string> groups = config_groups();
    CommandLine result;
    for (const std::string& argument : overrides) {
        const std::size_t equals = argument.find('=');
        const bool deletes = argument.starts_with('~');  // as in Hydra; every key has a default to fall back on
        check<UsageError>(deletes || equals != std::string::npos,
                          "{}: '{}' is not key=value, such as trainer.max_epochs=3", kCommandLine,
                          argument.substr(0, 80));
        std::string key = argument.substr(deletes ? 1 : 0, deletes ? std::string::npos : equals);
        key.erase(0, key.find_first_not_of('+'));  // Hydra's + and ++: here every known key can be set
        check<UsageError>(!key.empty() && !key.starts_with('='), "{}: '{}' names no key", kCommandLine,
                          argument.substr(0, 80));
        check<UsageError>(!deletes || equals == std::string::npos,
                          "{}: '{}' has a value; a key is taken back by its name alone, as in ~trainer.max_epochs",
                          kCommandLine, argument.substr(0, 80));
        const YamlNode value = deletes ? YamlNode{} : parse_argument_value(argument.substr(equals + 1), argument);
        const bool is_group = std::find(groups.begin(), groups.end(), key) != groups.end();
        if (is_group && (value.kind == YamlNode::Kind::scalar || value.kind == YamlNode::Kind::null)) {
            const auto same = [&](const auto& pick) { return pick.first == key && !pick.second.empty(); };
            if (deletes && std::ranges::none_of(result.picks, same)) result.taken_back.push_back(key);
            std::erase_if(result.picks, [&](const auto& pick) { return pick.first == key; });
            result.picks.emplace_back(key, value.text);
            continue;
        }
        std::vector<Setting> settings = flatten(value, key, "", kCommandLine, result.unknown);
        if (argument.ends_with('=') && equals + 1 == argument.size()) refuse_nothing(settings, argument);
        for (Setting& setting : settings) setting.takes_back = deletes;
        result.settings.insert(result.settings.end(), settings.begin(), settings.end());
    }
    return result;
}

bool is_file_name(const std::string& text) {
    std::error_code error;
    return text.ends_with(".yaml") || text.ends_with(".yml") || text.find('/') != std::string::npos ||
           fs::is_regular_file(text, error);
}

}  // namespace

std::vector<std::string> config_groups() {
    std::vector<std::string> groups = config_sections();
    groups.push_back("experiment");
    return groups;
}

std::vector<std::string> config_choices(const std::string& group, const ConfigSources& sources) {
    const std::vector<std::string> parts = part_names(group);
    std::set<std::string> names(parts.begin(), parts.end());
    for (const fs::path& folder : sources.config_dirs) {
        std::error_code error;
        fs::directory_iterator files(folder / group, error), end;
        for (; !error && files != end; files.increment(error)) {
            std::error_code ignored;
            if (files->path().extension() == ".yaml" && files->is_regular_file(ignored))
                names.insert(files->path().stem().string());
        }
    }
    return {names.begin(), names.end()};
}

Config load_config(const std::string& config_or_experiment, const std::vector<std::string>& overrides,
                   const ConfigSources& sources) {
    std::error_code error;
    if (fs::is_directory(config_or_experiment, error) && is_file_name(config_or_experiment)) {
        const fs::path inside = fs::path(config_or_experiment) / "config.yaml";
        check<UsageError>(fs::exists(inside, error), "{} is a folder; name a file of keys or an experiment",
                          config_or_experiment);
        fail<UsageError>("{} is the folder of a run; its configuration is {}, and train --resume {} goes on with it",
                         config_or_experiment, inside.string(), config_or_experiment);
    }
    if (fs::is_regular_file(config_or_experiment, error))  // a pipe is read once; words may set keys of its plug-ins
        load_named_plugins(parse_yaml(read_config_file(config_or_experiment), config_or_experiment), "",
                           config_or_experiment);
    const CommandLine command_line = parse_command_line(overrides);
    std::set<std::string> decided;
    for (const auto& [group, name] : command_line.picks) decided.insert(group);

    Composer composer(sources);
    if (is_file_name(config_or_experiment)) {
        const fs::path folder = fs::path(config_or_experiment).parent_path();
        if (folder.filename() == "experiment") composer.search_first(folder / "..");
        composer.search_first(folder.empty() ? "." : folder);
        composer.add_file(config_or_experiment, "experiment", decided);
    } else if (!config_or_experiment.empty()) {
        composer.pick("experiment", config_or_experiment, kCommandLine, decided);
    }
    composer.end_of_files();
    // The command line comes after every file, whatever the file says itself; single values after whole groups.
    for (const auto& [group, name] : command_line.picks) {
        if (name.empty()) continue;
        std::set<std::string> others = decided;
        others.erase(group);
        composer.pick(group, name, kCommandLine, others);
    }
    for (const std::string& group : command_line.taken_back)
        check<UsageError>(composer.not_taken().contains(group),
                          "{}: '~{}' takes back nothing: no file chooses one of the group {}; leave it out",
                          kCommandLine, group, group);
    composer.add(command_line.settings, command_line.unknown);
    Config config = composer.build();
    interpolate_names(config);
    return config;
}

}  // namespace invar
