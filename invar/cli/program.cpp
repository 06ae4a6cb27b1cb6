// The whole program: parses the command line, runs one command, and turns errors into one line and an exit code, the
// same for every command (docs/RUNS.md has the table): 1 is the bad news that it was asked for, or a training run that
// failed; 2 is trouble with what was asked, as diff has it.
#include "invar/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <sstream>
#include <system_error>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/others_options.h"
#include "invar/cli/output.h"
#include "invar/cli/ranks.h"
#include "invar/cli/signals.h"
#include "invar/config/help.h"
#include "invar/config/part.h"
#include "invar/config/plugin.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/core/suggest.h"
#include "invar/core/version.h"
#include "invar/dist/communicator.h"
#include "invar/kernels/threads.h"

namespace invar::cli {
namespace {

// Positional arguments are shown as the command describes them, not as the parser's one list of words.
class HelpPages : public CLI::Formatter {
  public:
    HelpPages() { column_width(38); }
    std::string make_option_usage(const CLI::Option* option) const override {
        return option->get_option_text().empty() ? Formatter::make_option_usage(option) : option->get_option_text();
    }
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        if (!is_positional || option->get_option_text().empty()) return Formatter::make_option(option, is_positional);
        return fmt::format("  {}\n      {}\n", option->get_option_text(), option->get_description());
    }
    // With the value that is taken where none is given. Zero and nothing stand for what the description says.
    std::string make_option_desc(const CLI::Option* option) const override {
        const std::string value = option->get_default_str(), text = Formatter::make_option_desc(option);
        const bool takes_value = option->get_expected_max() > 0 && !option->get_positional() &&
                                 !option->get_option_text().empty();  // else the parser writes it
        const bool tells = takes_value && !value.empty() && value != "0" && !value.starts_with('[');
        return tells ? fmt::format("{} (default: {})", text, value) : text;
    }
    // Commands that take a configuration show what it can choose.
    std::string make_footer(const CLI::App* app) const override {
        const std::string footer = Formatter::make_footer(app);
        return takes_config(*app) ? parts_help() + "\n" + footer : footer;
    }
};

std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
    return names;
}

// The first word is the command; a wrong one deserves more than "was not expected".
void check_command(const CLI::App& app, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word.starts_with("-")) continue;
        const std::vector<std::string> names = command_names(app);
        check<UsageError>(std::find(names.begin(), names.end(), word) != names.end(),
                          "unknown command '{}'{}; there are {}", word.substr(0, 80), did_you_mean(word, names),
                          fmt::join(names, ", "));
        return check_command_for_ranks(word);
    }
}

// By the type that the parser gives it, as in INT:POSITIVE or INT:INT in [1 - 1000]; "" where that is any text.
std::string values_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const bool whole = type.starts_with("INT") || type.starts_with("UINT");
    if (!whole && !type.starts_with("FLOAT")) return "";
    const std::string number = whole ? "a whole number" : "a number";
    const std::size_t from = type.find(" in ["), to = type.find(']');
    if (from != type.npos && to != type.npos) return number + " in " + type.substr(from + 4, to + 1 - (from + 4));
    if (type.find("NONNEGATIVE") != type.npos || type.starts_with("UINT")) return number + " that is not negative";
    return type.find("POSITIVE") != type.npos ? number + " above 0" : number;
}

// What the parser found wrong with an option, in words of our own.
std::string fault_of(const CLI::App& command, const CLI::ParseError& error) {
    const std::string text = error.what();
    for (const CLI::Option* option : command.get_options()) {
        if (text.find(option->get_name()) == text.npos) continue;
        if (error.get_name() == "RequiredError")
            return fmt::format("{} is missing ({})", option->get_name(), option->get_option_text());
        const std::size_t times = option->results().size();
        if (error.get_name() == "ArgumentMismatch" && times > 1)
            return fmt::format("{} is there {} times ({}) and is taken once", option->get_name(), times,
                               fmt::join(option->results(), ", "));
        if (error.get_name() == "ArgumentMismatch") return option->get_name() + " needs a value";
        const std::string values = values_of(*option);
        return fmt::format("{} {}: {}", option->get_name(), fmt::join(option->results(), " "),
                           values.empty() ? "it does not take such a value" : "it takes " + values);
    }
    return "this command line cannot be understood";
}

// What stands behind an option on the command line, after '=' or as the next word; "" where nothing does.
std::string value_of(const std::string& option, int argc, char** argv) {
    if (const std::size_t equals = option.find('='); equals != option.npos) return option.substr(equals + 1);
    const auto at = std::find(argv, argv + argc, option);
    if (argv + argc - at < 2) return "";
    const std::string next = at[1];
    return next.starts_with("-") || is_override(next) ? "" : next;
}

// What the parser found wrong, with the nearest option, or the key to set, where an option was not known.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
    const CLI::App* where = &app;
    for (const CLI::App* command : app.get_subcommands()) where = command;
    const std::string help =
        where == &app ? program_name() + " --help" : fmt::format("{} {} --help", program_name(), where->get_name());
    for (const std::string& word : where->remaining()) {
        if (!word.starts_with("-")) return fmt::format("'{}' was not expected; see {}", word.substr(0, 80), help);
        std::vector<std::string> known;
        for (const CLI::Option* option : where->get_options())
            for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
        const std::string flag = word.substr(0, word.find('='));
        std::string instead = did_you_mean(flag, known);
        if (instead.empty() && takes_config(*where))
            if (const std::string advice = advice_on_option(flag, value_of(word, argc, argv)); !advice.empty())
                instead = "; " + advice;
        return fmt::format("unknown option '{}'{}; see {}", flag.substr(0, 80), instead, help);
    }
    return fmt::format("{}; see {}", fault_of(*where, error), help);
}

constexpr int kFailed = 1, kTrouble = 2;

// The command that was asked for; "" where there is none.
std::string command_of(const CLI::App& app) {
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    return chosen.empty() ? "" : chosen.front()->get_name();
}

int report(int code, std::string message) {
    message.erase(message.find_last_not_of('\n') + 1);
    fail_world(message);
    warn("error: " + unmute_if_failed_alone() + message);
    wait_for_first_to_report();
    return code;
}

int report_missing(int code, const MissingRanks& error) {
    if (error.to_be_said_here) unmute();
    if (!StopOnSignal::requested()) return warn(fmt::format("error: {}", error.what())), code;
    warn(fmt::format("interrupted by {}: {}", StopOnSignal::name(), error.what()));
    return StopOnSignal::exit_code();
}

// What a command printed may be all there is of its result; then losing it is an error. Runs and validations keep
// theirs in files, and a reader who closed the pipe had enough.
int after_output(const CLI::App& app, int code, bool help) {
    const std::string command = command_of(app);
    const bool ran = command == "train" && app.get_subcommand(command)->count("--print-config") == 0;
    if (output_error() == 0 || output_error() == EPIPE || (!help && (ran || command == "validate"))) return code;
    return report(kTrouble, "cannot write to standard output: " + output_error_text());
}

int run(int argc, char** argv) {
    CLI::App app("Trains neural networks in mixed precision, and proves that the result can be trusted.",
                 program_name());
    app.formatter(std::make_shared<HelpPages>());
    app.get_formatter()->label("Positionals", "Arguments");
    app.get_formatter()->label("SUBCOMMAND", "COMMAND");
    app.set_version_flag("--version", "invar " INVAR_VERSION, "Print the version and leave");
    app.set_help_flag("-h,--help", "Print this help and leave");
    app.require_subcommand(0, 1);
    app.option_defaults()->always_capture_default();
    app.footer(
        example({"invar train synthetic --mixed_precision bf16"}) +
        fmt::format("\n\n`{0} COMMAND --help`, or `{0} help COMMAND`,", program_name()) +
        " tells about one command. Exit codes: 0 good; 1 FAIL, NaN found, or a run that "
        "failed;\n2 trouble with what was asked, a missing file say; 3 MARGINAL; 4 INVALID; 128 + the signal that "
        "interrupted it.");
    app.add_option("--plugin", "A shared library that registers models, data sets or tasks; may be given several times")
        ->type_name("FILE");
    int exit_code = 0;
    bool help = false;
    for (const auto add :
         {add_doctor,  add_check, add_data,    add_train,   add_validate, add_compare,   add_inspect,  add_diagnose,
          add_tune,    add_eval,  add_predict, add_sample,  add_export,   add_init,      add_tokenize, add_bench,
          add_profile, add_plan,  add_runs,    add_formats, add_ops,      add_completion})
        add(app, exit_code);
    for (CLI::App* command : app.get_subcommands({})) command->group("Commands");
    // A command that is stopped by an error is in trouble, unless it has said before what that would mean.
    const auto stopped = [&] { return exit_code != 0 ? exit_code : kTrouble; };
    try {
        check_command(app, argc, argv);
        app.parse(argc, argv);
        if (app.get_subcommands().empty()) print(app.help());
    } catch (const CLI::Success& success) {  // --help and --version
        std::ostringstream text;
        exit_code = app.exit(success, text, text);
        help = true;
        print(text.str());
    } catch (const CLI::ParseError& error) {
        return report(kTrouble, explain(app, error, argc, argv));
    } catch (const UsageError& error) {
        return report(kTrouble, error.what());
    } catch (const std::bad_alloc&) {
        return report(stopped(), fmt::format("out of memory: the system has no more for `{} {}`; end other "
                                             "programs, or ask less of it",
                                             program_name(), command_of(app)));
    } catch (const std::filesystem::filesystem_error& error) {
        return report(stopped(), fmt::format("cannot use {}: {}; check the path and its permissions",
                                             error.path1().string(), error.code().message()));
    } catch (const MissingRanks& error) {
        return report_missing(stopped(), error);
    } catch (const RankError& error) {
        unmute_if_first_is_lost(error);
        return report(error.first_lost >= 0 ? kFailed : stopped(), error.what() + advice_on_lost_rank(error));
    } catch (const Error& error) {
        return report(stopped(), error.what());
    } catch (const std::system_error& error) {
        const bool threads = error.code() == std::errc::resource_unavailable_try_again;
        return report(stopped(), fmt::format("the system refuses {}: {}{}", threads ? "another thread" : "a service",
                                             error.code().message(),
                                             threads ? "; raise its limit (ulimit -u), or lower trainer.threads and "
                                                       "data.num_workers"
                                                     : ""));
    } catch (const std::exception& error) {
        return report(stopped(), fmt::format("a failure that nobody thought of: {}", error.what()));
    } catch (...) {
        return report(stopped(), "something was thrown that does not say what it is");
    }
    try {
        end_as_rank();
    } catch (const Error& error) {
        return report(stopped(), error.what());
    }
    return after_output(app, exit_code, help);
}

// Plug-ins come first, wherever they stand, so that help and completion know their parts. Returns the other words.
std::vector<char*> load_plugins(int argc, char** argv) {
    constexpr std::string_view kFlag = "--plugin";
    std::vector<char*> others;
    for (int i = 0; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (i > 0 && word == "--") {
            others.insert(others.end(), argv + i, argv + argc);
            break;
        }
        if (i > 0 && word == kFlag) {
            check<UsageError>(i + 1 < argc, "--plugin needs a file");
            load_plugin(argv[++i], "command line");
        } else if (i > 0 && word.starts_with(kFlag) && word.substr(kFlag.size()).starts_with('=')) {
            load_plugin(std::string(word.substr(kFlag.size() + 1)), "command line");
        } else {
            others.push_back(argv[i]);
        }
    }
    return others;
}

// `help train` is `train --help`.
void understand_help(std::vector<char*>& words) {
    static char option[] = "--help";
    if (words.size() < 2 || std::string_view(words[1]) != "help") return;
    words.erase(words.begin() + 1);
    words.resize(std::min<std::size_t>(words.size(), 2));
    words.push_back(option);
}

int start(int argc, char** argv) {
    std::vector<char*> words;
    try {
        check_registered();
        words = load_plugins(argc, argv);
        understand_help(words);
        begin_as_rank();
    } catch (const UsageError& error) {
        return report(kTrouble, error.what());
    }
    return run(int(words.size()), words.data());
}

}  // namespace

}  // namespace invar::cli

int invar::program(int argc, char** argv) {
    using namespace cli;
    spin_briefly(argv);
    occupy_standard_descriptors();
    let_writes_fail();
    take_signals_aside();
    if (argc > 0 && argv[0][0] != '\0') set_program_name(std::filesystem::path(argv[0]).filename().string());
    const int code = start(argc, argv);
    mark_normal_end();
    return code;
}
