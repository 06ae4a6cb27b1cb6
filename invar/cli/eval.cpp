// `invar eval`: the metrics of saved weights on the validation data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/saved.h"
#include "invar/cli/start_up.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/io/jsonl.h"
#include "invar/train/logged_names.h"
#include "invar/train/review.h"
#include "invar/train/snapshot.h"
#include "invar/train/step.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct EvalArguments : ConfigArguments {
    std::string checkpoint;
    bool json = false;
};

Saved read_source(EvalArguments& arguments) {
    const auto first = std::find_if_not(arguments.words.begin(), arguments.words.end(), is_override);
    check<UsageError>(first != arguments.words.end(),
                      "say what to evaluate: the folder of a run, a checkpoint or a safetensors file, as in: invar "
                      "eval runs/mnist_mlp");
    const fs::path target = *first;
    arguments.words.erase(first);
    std::error_code error;
    check<UsageError>(fs::exists(target, error), "{}: there is no such file or folder", target.string());
    if (fs::is_directory(target, error) || is_checkpoint(SafetensorsFile(target).metadata()))
        return read_saved(target, arguments, arguments.checkpoint);
    check<UsageError>(arguments.checkpoint.empty(), "--checkpoint names one of a run; {} is a file", target.string());
    Saved weights{target.string(), arguments.load(), std::nullopt};
    weights.config.init_from.clear();  // they come from elsewhere now
    return weights;
}

// 1 where the loss is NaN or infinite: figures beside it would be taken for good ones.
int eval(EvalArguments& arguments) {
    const Saved source = read_source(arguments);
    const Setup setup(source.config);
    check<UsageError>(setup.test_data->batches_per_epoch() > 0,
                      "trainer.limit_val_batches leaves nothing to evaluate on");
    if (source.checkpoint) check_same_data(*source.checkpoint, setup.train_data->dataset(), source.name);
    load_saved(*setup.model, source);
    const Evaluation result = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
    const std::string data = setup.test_data->dataset().name();
    const bool finite = std::ranges::all_of(result.metrics, [](const Measured& m) { return std::isfinite(m.value); });
    if (!finite)
        warn(
            fmt::format("error: not every figure is a number: weights, or what they make of these data, are NaN or "
                        "infinite; `{} inspect {}` tells which weights",
                        program_name(), source.name));
    if (arguments.json) {
        JsonLine line;
        line.add("weights", source.name)
            .add("data", data)
            .add("precision", setup.precision.name())
            .add("samples", result.samples);
        for (const Measured& measured : result.metrics)
            line.add(logged::of_validation(measured.metric.name), measured.value);
        say(line.text());
        return finite ? 0 : 1;
    }
    say_why_on_cpu(source.config);
    Table table;
    table.row({"weights", source.name});
    table.row({"data", fmt::format("{}, {} samples", data, human_count(result.samples))});
    table.row({"precision", setup.precision.name()});
    for (const Measured& measured : result.metrics)
        table.row({logged::of_validation(measured.metric.name), measured.metric.str(measured.value)});
    print(table.text());
    if (finite) say_remarks(remarks_on(*setup.task, *setup.model, *setup.test_data, setup.precision));
    return finite ? 0 : 1;
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
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
    command->callback([arguments, &exit_code] { exit_code = eval(*arguments); });
}

}  // namespace invar::cli
