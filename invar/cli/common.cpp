#include "invar/cli/common.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/hub/folder.h"
#include "invar/io/file.h"
#include "invar/io/temporary_folder.h"
#include "invar/train/find_checkpoint.h"
#include "invar/train/run_config.h"
#include "invar/train/run_folder.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

void add_folder(std::vector<fs::path>& folders, const fs::path& folder) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) return;
    for (const fs::path& known : folders)
        if (fs::equivalent(known, folder, error)) return;
    folders.push_back(folder);
}

// The folder that the program lies in; "" where the system does not tell.
fs::path program_folder() {
    std::error_code error;
    fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (error) {  // /proc is not mounted; how it was started is known all the same
        const auto* const started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
        program = started == nullptr ? fs::path() : fs::canonical(started, error);
    }
    return program.parent_path();
}

// The folder of the library that this code is in, which a program of somebody else's may use from anywhere.
fs::path library_folder() {
    Dl_info where{};
    std::error_code error;
    if (::dladdr(reinterpret_cast<const void*>(&config_sources), &where) == 0 || where.dli_fname == nullptr) return {};
    const fs::path file = fs::canonical(where.dli_fname, error);
    return error ? fs::path() : file.parent_path();
}

// A folder that is installed with us, by its ways from our libraries and from our programs. In the build folder, and
// nowhere else, it is the one of the source tree.
std::optional<fs::path> installed_folder(const char* from_lib, const char* from_bin, const char* in_source_tree) {
    const fs::path library = library_folder(), program = program_folder();
    std::error_code error;
    if (fs::equivalent(library, INVAR_BUILD_LIB, error) || fs::equivalent(program, INVAR_BUILD_BIN, error))
        return fs::path(INVAR_SOURCE_DIR) / in_source_tree;
    if (!library.empty() && fs::is_directory(library / from_lib, error)) return (library / from_lib).lexically_normal();
    if (program.empty()) return std::nullopt;
    return (program / from_bin).lexically_normal();
}

}  // namespace

bool is_override(const std::string& word) {
    return word.find('=') != word.npos || (word.starts_with('~') && !word.starts_with("~/"));
}

ConfigSources config_sources() {
    ConfigSources sources;
    if (const char* named = std::getenv("INVAR_CONFIG_DIR"); named != nullptr) {
        std::istringstream folders(named);
        for (std::string folder; std::getline(folders, folder, ':');)
            if (!folder.empty()) add_folder(sources.config_dirs, folder);
    }
    add_folder(sources.config_dirs, "configs");
    if (const auto ours = installed_folder(INVAR_CONFIGS_FROM_LIB, INVAR_CONFIGS_FROM_BIN, "configs"))
        add_folder(sources.config_dirs, *ours);
    sources.folder_keys = keys_of_folder;
    return sources;
}

void ConfigArguments::add_to(CLI::App& command, const std::string& usage, const std::string& first) {
    command
        .add_option("words", words,
                    first + ", then keys to set (trainer.max_epochs=3) and files to pick (trainer=fp16_safe)")
        ->option_text(usage);
    flag_for(command, "--device", "trainer.device", "Where to run: cpu, cuda or auto", "DEVICE");
    flag_for(command, "--threads", "trainer.threads", "CPU threads; 0 for one per core that may be used", "N");
}

void ConfigArguments::flag_for(CLI::App& command, const std::string& flag, const std::string& key,
                               const std::string& help, const std::string& value_name) {
    command
        .add_option_function<std::string>(
            flag,
            [this, flag, key](const std::string& value) {
                check<UsageError>(!value.empty(), "{} has no value; leave it out, or say which", flag);
                flags.push_back(key + "=" + value);
            },
            help)
        ->type_name(value_name)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::string ConfigArguments::config() const {
    std::string found;
    for (const std::string& word : words) {
        if (is_override(word)) continue;
        check<UsageError>(found.empty(),
                          "'{}' and '{}' cannot both be the configuration; what sets a key has the form key=value",
                          found, word);
        check<UsageError>(!word.empty(), "an empty word is no configuration");
        found = word;
    }
    return found;
}

std::vector<std::string> ConfigArguments::overrides() const {
    std::vector<std::string> all;
    for (const std::string& word : words)
        if (is_override(word)) all.push_back(word);
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
}

std::pair<std::string, std::string> ConfigArguments::take_two(bool second_is_anything, const std::string& usage) {
    std::vector<std::string> taken;
    std::erase_if(words, [&](const std::string& word) {
        const bool anything = second_is_anything && taken.size() == 1;
        const bool take = taken.size() < 2 && (anything || !is_override(word));
        if (take) taken.push_back(word);
        return take;
    });
    check<UsageError>(taken.size() == 2 && std::ranges::all_of(words, is_override), "{}", usage);
    return {taken[0], taken[1]};
}

Config ConfigArguments::load() const {
    return load_config(config(), overrides(), config_sources());
}

// The configuration of a run has the keys of its folder of weights already, and goes on without it.
Config ConfigArguments::load_over(const fs::path& file) const {
    ConfigSources sources = config_sources();
    sources.folder_keys = nullptr;
    return load_config(file.string(), overrides(), sources);
}

Config ConfigArguments::load_over_text(const std::string& yaml) const {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "config.yaml";
    write_file_atomically(file, yaml);
    return load_over(file);
}

std::string read_more(const std::string& document, const std::string& what_it_does) {
    const std::optional<fs::path> folder = installed_folder(INVAR_DOCS_FROM_LIB, INVAR_DOCS_FROM_BIN, "docs");
    std::error_code error;
    if (!folder || !fs::is_regular_file(*folder / document, error)) return "";
    return fmt::format("\n{} {}.", (*folder / document).string(), what_it_does);
}

Config ConfigArguments::load_run(const fs::path& folder) const {
    const RunConfig found = read_run_config(folder);
    if (found.note.empty()) return load_over(RunFolder::config_of(folder));
    warn("note: " + found.note);
    return load_over_text(found.yaml);
}

LatestCheckpoint find_checkpoint_and_warn(const fs::path& run, const std::string& which) {
    LatestCheckpoint found = find_whole_checkpoint(run, which);
    for (const std::string& reason : found.passed_over) warn("note: passed over a checkpoint: " + reason);
    return found;
}

std::optional<std::string> tokenizer_name(const Config& config) {
    const Key* const key = config.data.info().find("tokenizer");
    if (key == nullptr) return std::nullopt;
    return parse_yaml(key->print(config.data.options()), "data.tokenizer").text;
}

bool takes_config(const CLI::App& command) {
    return command.get_option_no_throw("words") != nullptr;
}

std::string example(const std::vector<std::string>& lines) {
    std::string text = "Example:";
    for (const std::string& line : lines) {
        const std::size_t name = line.find("invar ");
        text += "\n  " + (name == line.npos ? line : line.substr(0, name) + program_name() + line.substr(name + 5));
    }
    return text;
}

}  // namespace invar::cli
