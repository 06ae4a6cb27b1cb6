// `invar completion`: scripts that complete commands, options, experiments, group=choice and key= in a shell; in bash
// also what options and keys take. They are made from the parser and the configuration's table, so they know what this
// program knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
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

std::vector<std::string> precisions_and(std::vector<std::string> others) {
    others.insert(others.end(), Precision::names().begin(), Precision::names().end());
    return others;
}

// The words of "one of none, light, block" or "auto, O0 or O1"; none where it is something else that is allowed.
std::vector<std::string> words_allowed(std::string allowed) {
    if (constexpr std::string_view kStart = "one of "; allowed.starts_with(kStart)) allowed.erase(0, kStart.size());
    if (const std::size_t at = allowed.rfind(" or "); at != allowed.npos) allowed.replace(at, 4, ", ");
    std::vector<std::string> words;
    for (std::size_t begin = 0, end = 0; end != allowed.npos; begin = end + 2) {
        end = allowed.find(", ", begin);
        const std::string word = allowed.substr(begin, end == allowed.npos ? end : end - begin);
        if (word.empty() || word.find(' ') != word.npos) return {};
        if (word.find(':') == word.npos) words.push_back(word);  // cuda:N stands for many
    }
    return words.size() > 1 ? words : std::vector<std::string>();
}

Values values_of(const KeyInfo& key) {
    const bool text = key.type == "text" || key.type == "list of texts";
    if (key.type == "true or false") return {.words = {"true", "false"}};
    if (text && key.allowed == "see Precision names") return {.words = precisions_and({})};
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

// By its name where its help tells the values in a sentence, otherwise by what stands for the value there.
Values values_of(const CLI::Option& option) {
    static const std::map<std::string, Values> kNamed = {
        {"device", {.words = {"cpu", "cuda", "auto"}}},
        {"mixed_precision", {.words = precisions_and({"no", "fp16", "bf16"})}},
        {"amp_opt_level", {.words = {"O0", "O1", "O2", "O3"}}},
        {"precisions", {.words = precisions_and({}), .several = true}},
        {"candidates", {.words = precisions_and({"configured"}), .several = true}},
        {"recompute", {.words = {"none", "light", "block"}, .several = true}},
        {"as", {.words = {"fp16", "bf16", "fp8", "e4m3", "e5m2"}, .several = true}},
        {"dtype", {.words = {"f32", "bf16", "f16"}}},
        {"class", {.words = {"low", "fp32", "wide_inside", "widest", "keep", "refuse"}}},
        {"checkpoint", {.words = {"last", "best"}, .files = true}},
    };
    for (const std::string& name : option.get_lnames())
        if (const auto named = kNamed.find(name); named != kNamed.end()) return named->second;
    const std::string text = option.get_option_text().empty() ? option.get_type_name() : option.get_option_text();
    Values values;
    if (text.find('|') != text.npos) {
        std::istringstream words(text);
        for (std::string word; std::getline(words, word, '|');)
            if (std::ranges::all_of(word, [](unsigned char c) { return std::islower(c) || std::isdigit(c); }))
                values.words.push_back(word);
    }
    const auto says = [&](const char* word) { return text.find(word) != text.npos; };
    values.files = says("FILE") || says("FOLDER") || says("PATH") || says("DIR") ||
                   (option.get_positional() && values.words.empty());
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

std::string zsh_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string cases;
    for (const CLI::App* command : commands)
        cases += fmt::format("        {}) flags=({}) ;;\n", command->get_name(), joined(flags_of(*command)));
    return fmt::format(R"(#compdef invar
# zsh completion for invar; to use it: source <(invar completion zsh)
_invar() {{
    local -a flags
    if (( CURRENT == 2 )); then
        compadd -- {commands} --help --version
        return
    fi
    case $words[2] in
{cases}    esac
    if [[ $PREFIX == -* ]]; then
        compadd -- $flags
        return
    fi
    case $words[2] in
        {configured})
            compadd -- {experiments} {choices}
            compadd -S '' -- {keys}
            _files
            ;;
        completion) compadd -- bash zsh fish ;;
    esac
}}
compdef _invar invar
)",
                       fmt::arg("commands", names_of(commands, false)), fmt::arg("cases", cases),
                       fmt::arg("configured", names_of(commands, true)),
                       fmt::arg("experiments", joined(words.experiments)), fmt::arg("choices", joined(words.choices)),
                       fmt::arg("keys", joined(words.keys)));
}

std::string fish_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string script = "# fish completion for invar; to use it: invar completion fish | source\n";
    script +=
        "complete -c invar -f -n __fish_use_subcommand -l help\ncomplete -c invar -f -n __fish_use_subcommand -l "
        "version\n";
    for (const CLI::App* command : commands) {
        std::string about = command->get_description();
        std::erase(about, '\'');
        const std::string& name = command->get_name();
        script += fmt::format("complete -c invar -f -n __fish_use_subcommand -a {} -d '{}'\n", name, about);
        const std::string inside = fmt::format("complete -c invar -n '__fish_seen_subcommand_from {}'", name);
        for (const std::string& flag : flags_of(*command)) script += fmt::format("{} -l {}\n", inside, flag.substr(2));
        if (takes_config(*command))
            script += fmt::format("{} -a '{} {} {}'\n", inside, joined(words.experiments), joined(words.choices),
                                  joined(words.keys));
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
