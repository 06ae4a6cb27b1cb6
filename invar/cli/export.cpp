// `invar export`: the model of a run as a folder that Hugging Face's library loads.
#include "invar/hub/export.h"

#include <fmt/format.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/signals.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/hub/config_json.h"
#include "invar/models/language_model.h"
#include "invar/report/text.h"
#include "invar/tasks/registry.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct ExportArguments : ConfigArguments {
    std::string checkpoint = "last", dtype = "f32", max_shard_size = "5GB";
    bool force = false;
};

// Why the folder holds no tokenizer, for those who would look for one there.
std::string why_no_tokenizer(const std::optional<std::string>& name) {
    if (name == "bytes")
        return "no tokenizer was written: a token is a byte, and 256 ends a text, which no tokenizer.json says";
    if (name && name->empty())
        return "no tokenizer was written: the run does not say what made its tokens; data.tokenizer=FILE names it";
    return "no tokenizer was written: the data of the run have none";
}

void export_run(ExportArguments& arguments, int& exit_code) {
    const auto words = arguments.take_two(
        false, fmt::format("say which run, and the folder to write, as in: {} export runs/gpt my-gpt", program_name()));
    const fs::path run = words.first, folder = words.second;
    check<UsageError>(RunFolder::is_run(run), "{}: not the folder of a run: it has no config.yaml", run.string());
    ExportOptions options;
    options.dtype = arguments.dtype == "f32" ? Dtype::f32 : arguments.dtype == "f16" ? Dtype::f16 : Dtype::bf16;
    options.max_shard_bytes = parse_bytes(arguments.max_shard_size);
    options.force = arguments.force;
    Config config = arguments.load_run(run);
    check_exportable(config.model);
    config.init_from.clear();
    const std::optional<std::string> tokenizer = tokenizer_name(config);
    options.tokenizer = tokenizer.value_or("");
    const LatestCheckpoint found = find_checkpoint_and_warn(run, arguments.checkpoint);

    set_threads(int(config.trainer.threads));
    const std::unique_ptr<Module> model = make_initial_model(*make_task(config), config);
    const StateDict weights = model_weights(load_checkpoint(found.path));
    try {
        model->load_state_dict(weights);
    } catch (const Error& error) {
        fail("{}: {}", found.path.string(), error.what());
    }
    const StopBetweenWrites stop(exit_code);
    const std::int64_t length = dynamic_cast<const LanguageModel&>(*model).context();
    const ExportedFolder written = export_model(folder, config.model, length, weights, options);
    const bool with_tokenizer = fs::exists(folder / "tokenizer.json");
    say(fmt::format("{}: {} of step {}, {} tensors in {} {}, {} in {}{}", folder.string(), config.model.name(),
                    found.step, written.tensors, written.files, written.files == 1 ? "file" : "files",
                    human_bytes(double(written.bytes)), arguments.dtype, with_tokenizer ? ", with its tokenizer" : ""));
    if (!with_tokenizer) say(why_no_tokenizer(tokenizer));
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("export", "Write the model of a run as a folder of Hugging Face's");
    auto a = std::make_shared<ExportArguments>();
    a->add_to(*command, "RUN FOLDER [key=value ...]", "The folder of a run, and the one to write");
    command->add_option("--checkpoint", a->checkpoint, "last, best or the file of a checkpoint")->type_name("WHICH");
    command->add_option("--dtype", a->dtype, "Of the weights: f32, bf16 or f16")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}))
        ->type_name("DTYPE");
    command->add_option("--max-shard-size", a->max_shard_size, "Of one file of weights, such as 5GB")
        ->type_name("SIZE");
    command->add_flag("--force", a->force, "Replace a folder that holds an exported model");
    command->footer(
        example({"invar export runs/gpt my-gpt", "invar export runs/gpt my-gpt --checkpoint best --dtype bf16"}) +
        read_more("HUGGING_FACE.md", "tells what can be exported and read"));
    command->callback([a, &exit_code] { export_run(*a, exit_code); });
}

}  // namespace invar::cli
