// `invar completion`: scripts that complete commands, options, experiments, group=choice and key= in a shell. They are
// made from the parser and the configuration's table, so they know what this program knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/output.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/report/text.h"

namespace invar {

namespace {

struct Words {
    std::vector<std::string> experiments;
    std::vector<std::string> choices;  // trainer=fp16_safe
    std::vector<std::string> keys;     // trainer.max_epochs=
};

Words find_words() {
    Words words;
    const ConfigSources sources = config_sources();
    words.experiments = config_choices("experiment", sources);
    for (const std::string& group : config_groups())
        if (group != "experiment")
            for (const std::string& name : config_choices(group, sources)) words.choices.push_back(group + "=" + name);
    for (const KeyInfo& key : config_keys())
        if (std::ranges::find(words.keys, key.key + "=") == words.keys.end()) words.keys.push_back(key.key + "=");
    return words;
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

std::string bash_script(const std::vector<const CLI::App*>& commands, const Words& words) {
    std::string cases;
    for (const CLI::App* command : commands)
        cases += fmt::format("        {}) flags='{}' ;;\n", command->get_name(), joined(flags_of(*command)));
    return fmt::format(R"(# bash completion for invar; to use it: source <(invar completion bash)
_invar() {{
    local cur command word flags='' i
    # '=' splits words for bash; the whole word is what counts here.
    word=${{COMP_LINE:0:COMP_POINT}}; word=${{word##* }}; cur=$word
    command=''
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in -*) ;; *) command=${{COMP_WORDS[i]}}; break ;; esac
    done
    COMPREPLY=()
    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W '{commands} --help --version' -- "$cur"))
        return
    fi
    case $command in
{cases}    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
        return
    fi
    case $command in
        {configured})
            COMPREPLY=($(compgen -W '{experiments} {choices} {keys}' -- "$cur") $(compgen -f -- "$cur"))
            [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
            # What stands before the '=' is on the line already.
            [[ $cur == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${{COMPREPLY[@]#"${{cur%=*}}="}}")
            ;;
        completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")) ;;
    esac
}}
complete -F _invar invar
)",
                       fmt::arg("commands", names_of(commands, false)), fmt::arg("cases", cases),
                       fmt::arg("configured", names_of(commands, true)),
                       fmt::arg("experiments", joined(words.experiments)), fmt::arg("choices", joined(words.choices)),
                       fmt::arg("keys", joined(words.keys)));
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

}  // namespace invar
