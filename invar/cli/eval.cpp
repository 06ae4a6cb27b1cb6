// `invar eval`: the metrics of saved weights on the validation data.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/start_up.h"
#include "invar/core/error.h"
#include "invar/train/run_folder.h"
#include "invar/train/snapshot.h"
#include "invar/train/step.h"
#include "invar/train/weights.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct EvalArguments : ConfigArguments {
    std::string checkpoint;
    bool json = false;
};

struct Source {
    std::string name;  // the file the weights are from
    Config config;
    std::optional<Checkpoint> checkpoint;  // a file of weights alone is read once there is a model for it
};

bool is_checkpoint(const fs::path& file) {
    const Metadata metadata = SafetensorsFile(file).metadata();
    const auto format = metadata.find("format");
    return format != metadata.end() && format->second.starts_with("invar-checkpoint");
}

Source read_source(EvalArguments& arguments) {
    const auto first = std::find_if_not(arguments.words.begin(), arguments.words.end(), is_override);
    check<UsageError>(first != arguments.words.end(),
                      "say what to evaluate: the folder of a run, a checkpoint or a safetensors file, as in: invar "
                      "eval runs/mnist_mlp");
    const fs::path target = *first;
    arguments.words.erase(first);
    std::error_code error;
    check<UsageError>(fs::exists(target, error), "{}: there is no such file or folder", target.string());
    const auto refuse_config = [&] {
        const std::string config = arguments.config();
        check<UsageError>(config.empty(), "{} brings its configuration; leave out '{}' and set keys as key=value",
                          target.string(), config);
    };
    if (fs::is_directory(target, error)) {
        refuse_config();
        check<UsageError>(RunFolder::is_run(target), "{}: not the folder of a run: it has no config.yaml",
                          target.string());
        const LatestCheckpoint latest =
            find_checkpoint_and_warn(target, arguments.checkpoint.empty() ? "last" : arguments.checkpoint);
        return {latest.path.string(), arguments.load_run(target), load_checkpoint(latest.path)};
    }
    check<UsageError>(arguments.checkpoint.empty(), "--checkpoint names one of a run; {} is a file", target.string());
    if (!is_checkpoint(target)) return {target.string(), arguments.load(), std::nullopt};
    refuse_config();
    Checkpoint checkpoint = load_checkpoint(target);
    const auto config = checkpoint.state.find("config");
    check<IoError>(config != checkpoint.state.end() && config->is_string(), "{}: the checkpoint holds no configuration",
                   target.string());
    const Config over = arguments.load_over_text(config->get<std::string>());
    return {target.string(), over, std::move(checkpoint)};
}

void eval(EvalArguments& arguments) {
    Source source = read_source(arguments);
    source.config.init_from.clear();  // the weights come from elsewhere now
    const Setup setup(source.config);
    check<UsageError>(setup.test_data->batches_per_epoch() > 0,
                      "trainer.limit_val_batches leaves nothing to evaluate on");
    if (!source.checkpoint) {
        load_weights(*setup.model, source.name);
    } else {
        check_same_data(*source.checkpoint, setup.train_data->dataset(), source.name);
        try {
            setup.model->load_state_dict(model_weights(*source.checkpoint));
        } catch (const Error& error) {
            fail("{}: {}", source.name, error.what());
        }
    }
    const Evaluation result = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
    const std::string data = setup.test_data->dataset().name();
    if (arguments.json) {
        JsonLine line;
        line.add("weights", source.name)
            .add("data", data)
            .add("precision", setup.precision.name())
            .add("samples", result.samples);
        for (const Measured& measured : result.metrics) line.add(measured.metric.name, measured.value);
        say(line.text());
        return;
    }
    say_why_on_cpu(source.config);
    Table table;
    table.row({"weights", source.name});
    table.row({"data", fmt::format("{}, {} samples", data, human_count(result.samples))});
    table.row({"precision", setup.precision.name()});
    for (const Measured& measured : result.metrics)
        table.row({measured.metric.name, measured.metric.str(measured.value)});
    print(table.text());
}

}  // namespace

void add_eval(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("eval", "Measure saved weights on the validation data");
    auto arguments = std::make_shared<EvalArguments>();
    arguments->add_to(*command, "RUN|CHECKPOINT|WEIGHTS [CONFIG] [key=value ...]",
                      "The folder of a run, or a file of weights with the experiment or YAML file they are of");
    command
        ->add_option("--checkpoint", arguments->checkpoint,
                     "Which one of a run (best by checkpoint.monitor): last, best or the file of a checkpoint")
        ->type_name("WHICH");
    command->add_flag("--json", arguments->json, "Print one JSON object");
    command->footer(example({"invar eval runs/mnist_convnet", "invar eval runs/mnist_convnet --checkpoint best",
                             "invar eval runs/mnist_convnet trainer.precision=bf16-mixed",
                             "invar eval weights.safetensors mnist_mlp"}));
    command->callback([arguments] { eval(*arguments); });
}

}  // namespace invar::cli
