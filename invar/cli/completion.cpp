// `invar completion`: scripts that complete commands, options, experiments, group=choice and key= in a shell; in bash
// also what options and keys take. They are made from the parser and the configuration's table, so they know what this
// program knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>

#include "invar/amp/precision.h"
#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/output.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/report/text.h"

namespace invar::cli {

namespace {

// What may stand behind an option, or behind the '=' of a key.
struct Values {
    std::vector<std::string> words;
    bool files = false;
    bool several = false;  // with commas between them
};

struct Words {
    std::vector<std::string> experiments;
    std::vector<std::string> choices;                    // trainer=fp16_safe
    std::vector<std::string> keys;                       // trainer.max_epochs=
    std::vector<std::pair<std::string, Values>> values;  // of keys for which there is something to offer
};

// The words of "one of none, light, block" or "auto, O0 or O1"; none where it is something else that is allowed. What
// takes more than a word to say ("last, best or the file of a checkpoint") is left out where `others` may be.
std::vector<std::string> words_allowed(std::string allowed, bool others = false) {
    if (constexpr std::string_view kStart = "one of "; allowed.starts_with(kStart)) allowed.erase(0, kStart.size());
    if (const std::size_t at = allowed.rfind(" or "); at != allowed.npos) allowed.replace(at, 4, ", ");
    std::vector<std::string> words;
    for (std::size_t begin = 0, end = 0; end != allowed.npos; begin = end + 2) {
        end = allowed.find(", ", begin);
        const std::string word = allowed.substr(begin, end == allowed.npos ? end : end - begin);
        const bool single = !word.empty() && word.find(' ') == word.npos;
        if (!single && !others) return {};
        if (single && word.find(':') == word.npos) words.push_back(word);  // cuda:N stands for many
    }
    return words.size() > 1 ? words : std::vector<std::string>();
}

Values values_of(const KeyInfo& key) {
    const bool text = key.type == "text" || key.type == "list of texts";
    if (key.type == "true or false") return {.words = {"true", "false"}};
    if (text && key.allowed == "see Precision names")
        return {.words = {Precision::names().begin(), Precision::names().end()}};
    Values values{.words = words_allowed(key.allowed)};
    // Texts that are no paths (the name of a run, say) are few, and names of files do no harm there.
    values.files = text && values.words.empty();
    return values;
}

Words find_words() {
    Words words;
    const ConfigSources sources = config_sources();
    words.experiments = config_choices("experiment", sources);
    for (const std::string& group : config_groups())
        if (group != "experiment")
            for (const std::string& name : config_choices(group, sources)) words.choices.push_back(group + "=" + name);
    for (const KeyInfo& key : config_keys()) {
        if (std::ranges::find(words.keys, key.key + "=") != words.keys.end()) continue;
        words.keys.push_back(key.key + "=");
        const Values values = values_of(key);
        if (values.words.empty() && !values.files) continue;
        words.values.emplace_back(key.key, values);
        for (const std::string& alias : key.aliases) words.values.emplace_back(alias, values);
    }
    return words;
}

bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0;
}

// By what stands for the value in the help: FILE, or bash|zsh|fish, where PRECISION stands for all of them; else by its
// description, as in "Where to run: cpu, cuda or auto"; else by the key that it is another name of.
Values values_of(const CLI::Option& option) {
    std::string text = option.get_option_text().empty() ? option.get_type_name() : option.get_option_text();
    Values values;
    if (constexpr std::string_view kMore = ",..."; text.ends_with(kMore)) {
        values.several = true;
        text.erase(text.size() - kMore.size());
    }
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, '|');)
        if (word == "PRECISION")
            std::ranges::copy(Precision::names(), std::back_inserter(values.words));
        else if (std::ranges::all_of(word, [](unsigned char c) { return std::islower(c) || std::isdigit(c); }))
            values.words.push_back(word);
    std::string told = option.get_description();
    if (const std::size_t at = told.find(": "); at != told.npos) told.erase(0, at + 2);
    told = told.substr(0, told.find(';'));
    const auto says = [](const std::string& where, const char* word) { return where.find(word) != where.npos; };
    if (values.words.empty() && !option.get_positional()) values.words = words_allowed(told, true);
    values.files = says(text, "FILE") || says(text, "FOLDER") || says(text, "PATH") || says(text, "DIR") ||
                   says(told, "the file of") || (option.get_positional() && values.words.empty());
    if (!values.words.empty() || values.files) return values;
    for (const KeyInfo& key : config_keys())
        for (const std::string& name : option.get_lnames())
            if (std::ranges::find(key.aliases, name) != key.aliases.end()) return values_of(key);
    return values;
}

std::vector<std::string> flags_of(const CLI::App& command) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    return flags;
}

// File names may hold anything; what a shell would take apart is left out.
std::string joined(const std::vector<std::string>& words) {
    std::vector<std::string> plain;
    for (const std::string& word : words)
        if (shell_word(word) == word) plain.push_back(word);
    return fmt::format("{}", fmt::join(plain, " "));
}

std::string names_of(const std::vector<const CLI::App*>& commands, bool with_config) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands)
        if (!with_config || takes_config(*command)) names.push_back(command->get_name());
    return fmt::format("{}", fmt::join(names, with_config ? "|" : " "));
}

std::string bash_values(const Values& values) {
    std::string text;
    if (!values.words.empty()) text += fmt::format(" values='{}'", joined(values.words));
    if (values.files) text += " files=yes";
    if (values.several) text += " several=yes";
    return text;
}

// What is known of one command: its flags, what each takes, and what its other words are.
std::string bash_case(const CLI::App& command) {
    std::string options, others;
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_positional() && option->get_name() != "words")
            others = fmt::format(" [[ -n $takes || $cur == -* ]] ||{};", bash_values(values_of(*option)));
        if (option->get_positional() || !takes_value(*option)) continue;
        std::vector<std::string> names;
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) names.push_back("-" + name);
        options +=
            fmt::format("                {}) takes=yes{} ;;\n", fmt::join(names, "|"), bash_values(values_of(*option)));
    }
    std::string text =
        fmt::format("        {})\n            flags='{}'\n", command.get_name(), joined(flags_of(command)));
    if (!options.empty()) text += "            case $option in\n" + options + "            esac\n";
    if (!others.empty()) text += "           " + others + "\n";
    return text + "            ;;\n";
}

std::string bash_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string cases, keys;
    for (const CLI::App* command : commands) cases += bash_case(*command);
    for (const auto& [key, values] : words.values)
        keys += fmt::format("                {}) takes=yes{} ;;\n", key, bash_values(values));
    return fmt::format(R"(# bash completion for invar; to use it: source <(invar completion bash)
_invar() {{
    local line=${{COMP_LINE:0:COMP_POINT}} typed=() names=() cur head tail i n
    local command='' option='' flags='' takes='' values='' files='' several=''
    # '=' splits words for bash; here only spaces do, but for those behind a backslash.
    line=${{line//'\ '/$'\1'}}
    IFS=$' \t' read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=('')
    n=${{#typed[@]}}
    cur=${{typed[n - 1]//$'\1'/ }}
    for ((i = 1; i < n - 1; i++)); do
        case ${{typed[i]}} in
            --plugin) ((++i)) ;;
            -*) ;;
            *) command=${{typed[i]}}; break ;;
        esac
    done
    # Whose value is being typed: that of the option before it, or of the one before its '='.
    head='' tail=$cur
    if [[ $cur == -*=* ]]; then
        option=${{cur%%=*}} head=${{cur%%=*}}= tail=${{cur#*=}}
    elif ((n > 2)) && [[ ${{typed[n - 2]}} == -* ]]; then
        option=${{typed[n - 2]}}
    fi
    COMPREPLY=()
    if [[ $option == --plugin ]]; then
        takes=yes files=yes
    elif [[ -z $command ]]; then
        COMPREPLY=($(compgen -W '{commands} --help --version --plugin' -- "$cur"))
        return
    fi
    case $command in
{cases}    esac
    if [[ -z $takes && $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
        return
    fi
    case $command in
        {configured})
            [[ -n $takes || $cur != *=* ]] || case ${{cur%%=*}} in
{keys}            esac
            if [[ -z $takes ]]; then
                values='{experiments} {choices} {keywords}' files=yes
            elif [[ -z $option ]]; then
                head=${{cur%%=*}}= tail=${{cur#*=}}
            fi
            ;;
    esac
    [[ -n $several && $tail == *,* ]] && head+=${{tail%,*}}, tail=${{tail##*,}}
    COMPREPLY=($(compgen -P "$head" -W "$values" -- "$tail"))
    if [[ -n $files ]]; then
        mapfile -t names < <(compgen -P "$head" -f -- "$tail")
        # Names of files alone: bash then quotes them, and puts a '/' behind folders.
        ((${{#COMPREPLY[@]}} == 0 && ${{#names[@]}} > 0)) && compopt -o filenames
        COMPREPLY+=("${{names[@]}}")
    fi
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
    # What stands before the '=' is on the line already.
    [[ $cur == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${{COMPREPLY[@]#"${{cur%=*}}="}}")
}}
complete -F _invar invar
)",
                       fmt::arg("commands", names_of(commands, false)), fmt::arg("cases", cases),
                       fmt::arg("configured", names_of(commands, true)), fmt::arg("keys", keys),
                       fmt::arg("experiments", joined(words.experiments)), fmt::arg("choices", joined(words.choices)),
                       fmt::arg("keywords", joined(words.keys)));
}

// How zsh adds the values to what it offers.
std::string zsh_values(const Values& values) {
    std::string text;
    if (values.several) text += "compset -P '*,'; ";
    if (!values.words.empty()) text += fmt::format("compadd -- {}; ", joined(values.words));
    if (values.files) text += "_files; ";
    return text;
}

std::string zsh_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string cases, taken, keys;
    for (const CLI::App* command : commands) {
        cases += fmt::format("        {}) flags=({}) ;;\n", command->get_name(), joined(flags_of(*command)));
        for (const CLI::Option* option : command->get_options()) {
            if (option->get_positional() || !takes_value(*option)) continue;
            for (const std::string& name : option->get_lnames())
                taken += fmt::format("        {}:--{}) {}return ;;\n", command->get_name(), name,
                                     zsh_values(values_of(*option)));
        }
    }
    for (const auto& [key, values] : words.values)
        keys += fmt::format("            {}) {};;\n", key, zsh_values(values));
    return fmt::format(R"(#compdef invar
# zsh completion for invar; to use it: source <(invar completion zsh)
_invar() {{
    local -a flags
    local key
    if (( CURRENT == 2 )); then
        compadd -- {commands} --help --version
        return
    fi
    case $words[2]:$words[CURRENT-1] in
{taken}    esac
    case $words[2] in
{cases}    esac
    if [[ $PREFIX == -* ]]; then
        compadd -- $flags
        return
    fi
    case $words[2] in
        {configured})
            if [[ $PREFIX == *=* ]]; then
                key=${{PREFIX%%=*}}
                compset -P '*='
                case $key in
{keys}                esac
                return
            fi
            compadd -- {experiments} {choices}
            compadd -S '' -- {keywords}
            _files
            ;;
        completion) compadd -- bash zsh fish ;;
        *) _files ;;
    esac
}}
compdef _invar invar
)",
                       fmt::arg("commands", names_of(commands, false)), fmt::arg("cases", cases),
                       fmt::arg("taken", taken), fmt::arg("keys", keys),
                       fmt::arg("configured", names_of(commands, true)),
                       fmt::arg("experiments", joined(words.experiments)), fmt::arg("choices", joined(words.choices)),
                       fmt::arg("keywords", joined(words.keys)));
}

// What an option takes, in fish's own options.
std::string fish_values(const CLI::Option& option) {
    if (!takes_value(option)) return " -f";
    const Values values = values_of(option);
    std::string text = values.files ? " -r -F" : " -x";
    std::string words = joined(values.words);
    if (values.several) words = fmt::format("(__fish_append , {})", words);
    if (!values.words.empty()) text += fmt::format(" -a '{}'", words);
    return text;
}

std::string fish_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string script = "# fish completion for invar; to use it: invar completion fish | source\n";
    script +=
        "complete -c invar -f -n __fish_use_subcommand -l help\ncomplete -c invar -f -n __fish_use_subcommand -l "
        "version\n";
    std::vector<std::string> pairs;
    for (const auto& [key, values] : words.values)
        for (const std::string& word : values.words) pairs.push_back(key + "=" + word);
    for (const CLI::App* command : commands) {
        std::string about = command->get_description();
        std::erase(about, '\'');
        const std::string& name = command->get_name();
        script += fmt::format("complete -c invar -f -n __fish_use_subcommand -a {} -d '{}'\n", name, about);
        const std::string inside = fmt::format("complete -c invar -n '__fish_seen_subcommand_from {}'", name);
        for (const CLI::Option* option : command->get_options())
            for (const std::string& flag : option->get_lnames())
                script += fmt::format("{} -l {}{}\n", inside, flag, fish_values(*option));
        if (takes_config(*command))
            script += fmt::format("{} -a '{} {} {} {}'\n", inside, joined(words.experiments), joined(words.choices),
                                  joined(words.keys), joined(pairs));
    }
    return script + "complete -c invar -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n";
}

// The scripts are written for `invar`; a program of another name has them by its own.
std::string by_own_name(std::string script) {
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.'; };
    constexpr std::string_view kName = "invar";
    for (std::size_t at = script.find(kName); at != script.npos; at = script.find(kName, at)) {
        const std::size_t end = at + kName.size();
        const bool whole = (at == 0 || !is_word(script[at - 1])) && (end == script.size() || !is_word(script[end]));
        if (whole) script.replace(at, kName.size(), program_name());
        at += whole ? program_name().size() : kName.size();
    }
    return script;
}

void print_script(const CLI::App& app, const std::string& shell) {
    const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
    if (shell == "bash")
        print(by_own_name(bash_script(commands, find_words())));
    else if (shell == "zsh")
        print(by_own_name(zsh_script(commands, find_words())));
    else if (shell == "fish")
        print(by_own_name(fish_script(commands, find_words())));
    else
        fail<UsageError>("no completion for the shell '{}'; there are bash, zsh and fish", shell.substr(0, 80));
}

}  // namespace

void add_completion(CLI::App& app, int&) {
    CLI::App* command =
        app.add_subcommand("completion", "Print a script that completes invar's command line in a shell");
    auto shell = std::make_shared<std::string>();
    command->add_option("shell", *shell, "The shell: bash, zsh or fish")->required()->option_text("bash|zsh|fish");
    command->footer(example({"source <(invar completion bash)"}));
    command->callback([shell, &app] { print_script(app, *shell); });
}

}  // namespace invar::cli
