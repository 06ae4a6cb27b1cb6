// `invar init`: the weights a run would begin with, as a safetensors file that other frameworks read too.
#include <fmt/format.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/signals.h"
#include "invar/core/error.h"
#include "invar/io/safetensors.h"
#include "invar/tasks/registry.h"
#include "invar/train/setup.h"

namespace invar::cli {

namespace {

struct InitArguments : ConfigArguments {
    bool force = false;
};

void init(InitArguments& arguments, int& exit_code) {
    // The file is the last word that is no override; a configuration may stand before it.
    const auto last = std::find_if_not(arguments.words.rbegin(), arguments.words.rend(), is_override);
    check<UsageError>(last != arguments.words.rend(),
                      "name the file to write, as in: invar init mnist_mlp weights.safetensors");
    const std::filesystem::path file = *last;
    check<UsageError>(
        file.extension() == ".safetensors",
        "'{}' is not the name of a .safetensors file to write; as in: invar init mnist_mlp weights.safetensors",
        file.string());
    arguments.words.erase(std::next(last).base());
    std::error_code error;
    check<UsageError>(arguments.force || !std::filesystem::exists(file, error),
                      "{} exists already; --force replaces it", file.string());

    const Config config = arguments.load();
    const std::unique_ptr<Module> model = make_initial_model(*make_task(config), config);
    const StateDict weights = model->state_dict();
    const StopBetweenWrites stop(exit_code);
    save_safetensors(file, weights, {{"format", "pt"}});
    say(fmt::format("{}: {} tensors, {} parameters of {} by seed {}", file.string(), weights.size(),
                    human_count(model->parameter_count()), config.model.name(), config.seed));
}

}  // namespace

void add_init(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("init", "Write a run's initial weights to a safetensors file");
    auto arguments = std::make_shared<InitArguments>();
    arguments->add_to(*command, "[CONFIG] FILE.safetensors [key=value ...]",
                      "An experiment or a YAML file, and the file to write");
    command->add_flag("--force", arguments->force, "Replace a file that is there");
    command->footer(example(
        {"invar init mnist_mlp weights.safetensors seed=7", "invar train mnist_mlp init_from=weights.safetensors"}));
    command->callback([arguments, &exit_code] { init(*arguments, exit_code); });
}

}  // namespace invar::cli
