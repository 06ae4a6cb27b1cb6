#include "tests/docs/names.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include "invar/amp/precision.h"
#include "invar/config/config.h"
#include "invar/config/keys.h"
#include "invar/config/table.h"
#include "invar/core/error.h"

namespace invar::docs {

namespace {

void each(const std::string& text, const std::regex& pattern, const std::function<void(const std::smatch&)>& take) {
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) take(*at);
}

// NAME, N, $name, ...: stands for what the reader puts there.
bool is_placeholder(const std::string& word) {
    return word.empty() || word.find_first_of("$<{*[") != word.npos || word.starts_with("..") ||
           std::ranges::none_of(word, [](unsigned char c) { return std::islower(c) || std::isdigit(c); });
}

std::vector<std::string> split(const std::string& text, char between) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, between);) parts.push_back(part);
    return parts;
}

// What is between backticks in prose, also over the end of a line, but never over that of a paragraph.
void take_inline(const std::string& paragraph, int line, const std::string& name, std::vector<Code>& found) {
    static const std::regex kInline("`([^`]+)`");
    each(paragraph, kInline, [&](const std::smatch& match) {
        const auto before = paragraph.begin() + match.position();
        std::string text = match[1];
        std::ranges::replace(text, '\n', ' ');
        found.push_back({text, name + ":" + std::to_string(line + std::count(paragraph.begin(), before, '\n'))});
    });
}

}  // namespace

std::vector<Code> code_in(const std::string& markdown, const std::string& name) {
    std::vector<Code> found;
    std::istringstream in(markdown);
    std::string paragraph, command;
    int number = 0, begin = 1;
    bool inside = false, cpp = false;
    for (std::string line; std::getline(in, line);) {
        ++number;
        const bool fence = line.starts_with("```");
        if (fence || (!inside && line.empty())) {
            take_inline(paragraph, begin, name, found);
            paragraph.clear();
            begin = number + 1;
        }
        if (fence) {
            inside = !inside;
            cpp = inside && line == "```cpp";
        } else if (inside && !cpp) {  // a command may go on behind a backslash
            command += line;
            const bool goes_on = command.ends_with('\\');
            if (goes_on) command.back() = ' ';
            if (!goes_on) found.push_back({std::exchange(command, ""), name + ":" + std::to_string(number)});
        } else if (!inside && !line.empty()) {
            paragraph += line + "\n";
        }
    }
    take_inline(paragraph, begin, name, found);
    return found;
}

std::vector<Code> code_of(const std::filesystem::path& document) {
    std::ostringstream text;
    text << std::ifstream(document).rdbuf();
    return code_in(text.str(), document.filename().string());
}

std::vector<Code> lines_of(const std::string& text, const std::string& name) {
    std::vector<Code> found;
    int number = 0;
    for (const std::string& line : split(text, '\n')) found.push_back({line, name + ":" + std::to_string(++number)});
    return found;
}

Registry Registry::of_program(const std::string& fish_script, const std::filesystem::path& configs) {
    Registry registry;
    static const std::regex kCommand("__fish_use_subcommand -a (\\S+) -d");
    static const std::regex kOption("__fish_seen_subcommand_from (\\S+)' -l (\\S+)");
    each(fish_script, kCommand, [&](const std::smatch& match) { registry.options[match[1]] = {"help", "plugin"}; });
    each(fish_script, kOption, [&](const std::smatch& match) { registry.options[match[1]].insert(match[2]); });
    const ConfigSources sources{{configs}};
    for (const std::string& group : config_groups()) {
        const std::vector<std::string> names = config_choices(group, sources);
        registry.choices[group] = {names.begin(), names.end()};
    }
    registry.experiments = registry.choices["experiment"];
    registry.sections = {config_sections().begin(), config_sections().end()};
    for (const KeyInfo& key : config_keys()) {
        registry.keys.insert(key.key);
        registry.keys.insert(key.aliases.begin(), key.aliases.end());
        if (key.type.find("map") != key.type.npos) registry.maps.insert(key.key);
    }
    return registry;
}

bool Registry::has_key(const std::string& written) const {
    const auto below_map = [&](const std::string& map) { return written.starts_with(map + "."); };
    return keys.contains(written) || !key_meant_by(written).empty() || std::ranges::any_of(maps, below_map) ||
           (written.ends_with(".name") && choices.contains(written.substr(0, written.size() - 5)));
}

bool Registry::has_precision(const std::string& written) const {
    try {
        Precision::parse(written);
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

void NameCheck::note(const std::string& kind, const std::string& word, bool there, const std::string& where) {
    if (!there && elsewhere_.contains(word)) {
        excused_.insert(word);
        return;
    }
    ++seen_[kind];
    if (!there) missing_.push_back(where + ": there is no " + kind + " " + word);
}

std::vector<std::string> NameCheck::idle() const {
    std::vector<std::string> words;
    for (const auto& [word, reason] : elsewhere_)
        if (!excused_.contains(word)) words.push_back(word);
    return words;
}

void NameCheck::look_at(const std::vector<Code>& all) {
    for (const Code& code : all) {
        look_for_keys(code);
        look_for_commands(code);
        look_for_options(code);
        look_for_precisions(code);
        look_for_choices(code);
    }
}

void NameCheck::look_for_formats(const std::vector<Code>& text) {
    static const std::regex kFormat("\\b(?:FP|BF|TF|NF|INT|MXFP|NVFP)[0-9]+\\b");
    for (const Code& line : text)
        each(line.text, kFormat, [&](const std::smatch& match) {
            note("precision", match.str(), registry_.has_precision(match.str()), line.where);
        });
}

// trainer.precision, and whatever is set as a key with a dot in it. What is called is a function of a program.
void NameCheck::look_for_keys(const Code& code) {
    static const std::regex kKey("(^|[^\\w./$-])([a-z_]+(?:\\.[a-z_][a-z0-9_]*)+)(?![\\w(<*])(=?)");
    each(code.text, kKey, [&](const std::smatch& match) {
        const std::string word = match[2];
        const bool ours = registry_.sections.contains(word.substr(0, word.find('.')));
        if (ours || match.length(3) > 0) note("key", word, registry_.has_key(word), code.where);
    });
}

void NameCheck::look_for_commands(const Code& code) {
    static const std::regex kCall("(?:^|[\\s;&|(/\"'`])invar((?: --plugin[ =]\\S+)*) ([a-z][a-z_-]*)([^|;&#>)`]*)");
    each(code.text, kCall, [&](const std::smatch& match) {
        const std::string command = match[2];
        if (command == "help") return;
        const bool there = registry_.options.contains(command);
        note("command", command, there, code.where);
        if (there) look_at_command(command, match[3], code.where);
    });
}

void NameCheck::look_at_command(const std::string& command, const std::string& words, const std::string& where) {
    static const std::set<std::string> kComposed = {"train", "validate", "check", "tune", "bench", "plan"};
    static const std::regex kSetting("~?([a-z_]+(?:\\.[a-z0-9_]+)*)=\\S*");
    bool first = true, value = false;  // nothing but the command and settings so far; the word before was an option
    for (std::string word : split(words, ' ')) {
        while (!word.empty() && std::string_view("\"'`.,:").find(word.back()) != std::string_view::npos)
            word.pop_back();
        std::smatch setting;
        if (word.empty() || word == "--") continue;
        if (word.starts_with("--")) {
            note("option", word.substr(0, word.find('=')),
                 registry_.options.at(command).contains(word.substr(2, word.find('=') - 2)), where);
        } else if (std::regex_match(word, setting, kSetting)) {
            const std::string key = setting[1];
            if (key.find('.') == key.npos && !registry_.choices.contains(key))
                note("key", key, registry_.has_key(key), where);
        } else if (first && !value && kComposed.contains(command)) {
            const bool file = word.find_first_of("./") != word.npos;
            if (!file && !is_placeholder(word) && word != "-h")
                note("experiment", word, registry_.experiments.contains(word), where);
            first = false;
        }
        value = word.starts_with("--") && word.find('=') == word.npos;
    }
}

// `--resume` by itself is an option of some command.
void NameCheck::look_for_options(const Code& code) {
    static const std::regex kAlone("^--([A-Za-z][\\w-]*)");
    each(code.text, kAlone, [&](const std::smatch& match) {
        const auto has = [&](const auto& command) { return command.second.contains(match[1]); };
        note("option", "--" + match.str(1), std::ranges::any_of(registry_.options, has), code.where);
    });
}

void NameCheck::look_for_precisions(const Code& code) {
    static const std::regex kLooks("(^|[^\\w./-])((?:[a-z]*[0-9]+[-_](?:mixed|true))|mixed_b?float[0-9]+)(?![\\w-])");
    each(code.text, kLooks,
         [&](const std::smatch& match) { note("precision", match[2], registry_.has_precision(match[2]), code.where); });
    static const std::regex kGiven("(?:--\\w*precisions? |precision=|--precisions=)([a-z0-9][\\w,-]*)");
    each(code.text, kGiven, [&](const std::smatch& match) {
        for (const std::string& name : split(match[1], ','))
            note("precision", name, registry_.has_precision(name), code.where);
    });
}

// model=mlp, of every group there is.
void NameCheck::look_for_choices(const Code& code) {
    static const std::regex kChoice("(^|[^\\w.])([a-z_]+)=([A-Za-z_][\\w-]*)(?![\\w.\\[(/:*])");
    each(code.text, kChoice, [&](const std::smatch& match) {
        const std::string group = match[2], name = match[3];
        if (!registry_.choices.contains(group) || is_placeholder(name)) return;
        note("choice", group + "=" + name, registry_.choices.at(group).contains(name), code.where);
    });
}

}  // namespace invar::docs
