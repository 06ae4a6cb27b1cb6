// What the commands that take a configuration share: its words and flags, and where group files are looked for.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "invar/config/config.h"
#include "invar/io/checkpoint.h"

namespace invar::cli {

// What every command composes its configuration from: group files in $INVAR_CONFIG_DIR (several with ':'), ./configs,
// then share/invar/configs beside the program, or where it is started in its build folder the source tree, those that
// exist; and folders of Hugging Face's, where init_from names one.
ConfigSources config_sources();

// Whether a word sets a key or takes one back: key=value, or Hydra's ~key.
bool is_override(const std::string& word);

// [CONFIG_OR_EXPERIMENT] [key=value ...] [~key ...], and flags that stand for keys. A flag wins over key=value.
struct ConfigArguments {
    std::vector<std::string> words;
    std::vector<std::string> flags;  // as key=value

    // Declares the words, shown in help as `usage`, with --device and --threads. Must outlive the parsing.
    // `first`: what the words before the keys are, for the help.
    void add_to(CLI::App& command, const std::string& usage = "[CONFIG] [key=value ...]",
                const std::string& first = "An experiment or a YAML file");
    // One more flag that sets a key.
    void flag_for(CLI::App& command, const std::string& flag, const std::string& key, const std::string& help,
                  const std::string& value_name);

    // The one word that is no override; "" where there is none. More than one is a UsageError.
    std::string config() const;
    // The words that are overrides, then the flags.
    std::vector<std::string> overrides() const;
    // Takes the first two words that set no key out of the others: "RUN PROMPT". Where the second may be anything, it
    // is what follows the first. Throws a UsageError with `usage` where there are fewer, or more.
    std::pair<std::string, std::string> take_two(bool second_is_anything, const std::string& usage);
    Config load() const;
    // The same on top of a configuration that is not among the words: a file, or its text.
    Config load_over(const std::filesystem::path& file) const;
    Config load_over_text(const std::string& yaml) const;
    // That of a run; warns where its config.yaml is no use and a checkpoint had to do.
    Config load_run(const std::filesystem::path& folder) const;
};

// "\nPATH tells more." for the end of a help page, PATH being that of a document of docs/ where this program was
// installed or built; nothing where it is not there.
std::string read_more(const std::string& document, const std::string& what_it_does);

// A checkpoint of a run by what people call it, warning of those that it had to pass over; there must be one.
LatestCheckpoint find_checkpoint_and_warn(const std::filesystem::path& run, const std::string& which);

// What made the tokens of a configuration's data, as its key names it; none where the data have no such key.
std::optional<std::string> tokenizer_name(const Config& config);

// Whether a command takes a configuration.
bool takes_config(const CLI::App& command);

// "Example:\n  invar train ..." for the end of a help page, by the name of this program.
std::string example(const std::vector<std::string>& lines);

}  // namespace invar::cli
