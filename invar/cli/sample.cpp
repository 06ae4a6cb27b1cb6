// `invar sample`: text from a language model that a run has trained, or from one of Hugging Face's.
#include "invar/models/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/shell.h"
#include "invar/hub/folder.h"
#include "invar/kernels/devices.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"
#include "invar/text/tokenizer.h"
#include "invar/text/unicode.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct SampleArguments : ConfigArguments {
    std::string checkpoint = "last";
    SampleOptions options;
    bool no_cache = false, json = false, logits = false;
};

// As JSON, for those who hold the model against another reader of it: what the prompt is, and what it leads to.
std::string told_in_full(LanguageModel& model, const std::vector<std::int64_t>& prompt, Device device,
                         nlohmann::ordered_json line) {
    const NoGrad no_grad;
    check<UsageError>(std::int64_t(prompt.size()) <= model.context(),
                      "--logits: the prompt has {} tokens, and the model has places for {}", prompt.size(),
                      model.context());
    const Tensor logits = model(ops::to(Tensor::from(prompt, {1, std::int64_t(prompt.size())}), device));
    line["prompt_ids"] = prompt;
    line["logits"] = logits[{0, -1}].to_vector<float>();
    return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// That of the run's data; a byte a token where they do not say.
text::Tokenizer tokenizer_of(const Config& config) {
    const std::optional<std::string> name = tokenizer_name(config);
    if (!name) return text::bytes_tokenizer();
    check<UsageError>(!name->empty(), "the run does not say what made its tokens; say data.tokenizer=FILE");
    return text::tokenizer_by_name(*name);
}

void sample_text(SampleArguments& arguments) {
    const auto words = arguments.take_two(
        true, fmt::format("say which run, and how the text begins, in quotes, as in: {} sample runs/gpt \"Once upon\"",
                          program_name()));
    check<UsageError>(arguments.json || !arguments.logits, "--logits is for --json: name both");
    const fs::path folder = words.first;
    const std::string& beginning = words.second;
    LatestCheckpoint found;
    Config config;
    if (!RunFolder::is_run(folder) && is_hub_folder(folder)) {
        // Its weights are those to begin with; its tokenizer is that of a text of which nothing is read.
        arguments.words.insert(arguments.words.begin(),
                               {"init_from=" + quote_yaml(folder.string()), "data=text", "data.length=1"});
        config = arguments.load();
    } else {
        check<UsageError>(RunFolder::is_run(folder),
                          "{}: not the folder of a run: it has no config.yaml; nor one of Hugging Face's: it has no "
                          "config.json",
                          folder.string());
        found = find_checkpoint_and_warn(folder, arguments.checkpoint);
        config = arguments.load_run(folder);
        config.init_from.clear();
    }
    const Device device = resolve_device(config.trainer.device);
    const Precision precision = config.trainer.resolved_precision();
    precision.require(device);
    require_precisions(config.trainer, device);
    set_threads(int(config.trainer.threads));
    const std::unique_ptr<Module> made = make_initial_model(*make_task(config), config);
    auto* const model = dynamic_cast<LanguageModel*>(made.get());
    check<UsageError>(model != nullptr, "{}: model {} is no language model", folder.string(), config.model.name());
    if (found) model->load_state_dict(model_weights(load_checkpoint(found.path)));
    model->to(device);

    const text::Tokenizer tokenizer = tokenizer_of(config);
    std::vector<std::int64_t> prompt;
    for (const text::TokenId id : tokenizer.encode(beginning)) prompt.push_back(std::int64_t(id));
    if (prompt.empty() && tokenizer.end_of_text()) prompt.push_back(std::int64_t(*tokenizer.end_of_text()));
    SampleOptions options = arguments.options;
    options.cache = !arguments.no_cache;
    if (tokenizer.end_of_text()) options.stop = std::int64_t(*tokenizer.end_of_text());

    const Autocast cast(precision);
    std::vector<text::TokenId> all;
    bool begun = arguments.json;
    const auto begin = [&] {  // not before it is known that there is something to say
        if (!std::exchange(begun, true)) print(beginning);
    };
    std::size_t shown = 0;  // bytes
    const auto told = [&](std::int64_t token) {
        begin();
        if (token == options.stop) return;
        all.push_back(text::TokenId(token));
        if (arguments.json) return;
        // A token may be half a character, which waits for its other half. No character is longer than four bytes.
        const std::string text = tokenizer.decode(all), fresh = text.substr(std::min(shown, text.size()));
        const std::size_t whole = text::valid_utf8_prefix(fresh);
        const std::size_t ready = fresh.size() - whole < 4 ? whole : fresh.size();
        print(fresh.substr(0, ready));
        shown += ready;
    };
    sample(*model, prompt, device, options, told);
    begin();
    const std::string text = tokenizer.decode(all);
    if (arguments.logits) {
        nlohmann::ordered_json line = {{"prompt", beginning}, {"text", text}, {"tokens", all.size()}, {"ids", all}};
        return say(told_in_full(*model, prompt, device, std::move(line)));
    }
    if (arguments.json) {
        JsonLine line;
        line.add("prompt", beginning).add("text", text).add("tokens", std::int64_t(all.size()));
        return say(line.text());
    }
    print(text.substr(std::min(shown, text.size())) + "\n");
}

// An option that takes a whole number, and says from where to where. It is read from its text, since the parser would
// make a large number of a negative one where there is no sign to keep.
template <class T>
void add_whole(CLI::App& command, const std::string& flag, T& out, T least, T most, const std::string& help,
               const std::string& value_name) {
    const auto set = [=, &out](const std::string& text) {
        T value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        check<UsageError>(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
                          "{} {}: it takes a whole number from {} to {}", flag, printable(text).substr(0, 80), least,
                          most);
        out = value;
    };
    command.add_option_function<std::string>(flag, set, help)->type_name(value_name);
}

}  // namespace

void add_sample(CLI::App& app, int&) {
    CLI::App* command =
        app.add_subcommand("sample", "Write text with a language model of a run, or of a Hugging Face folder");
    auto a = std::make_shared<SampleArguments>();
    a->add_to(*command, "RUN|FOLDER PROMPT [key=value ...]",
              "The folder of a run or a Hugging Face model, and how the text begins");
    constexpr std::int64_t kMost = std::int64_t(1) << 24;
    add_whole<std::int64_t>(*command, "--tokens", a->options.tokens, 1, kMost, "How many at most", "N");
    command
        ->add_option("--temperature", a->options.temperature,
                     "0 takes the likeliest each time, 1 draws as the model says")
        ->type_name("T");
    add_whole<std::int64_t>(*command, "--top-k", a->options.top_k, 0, kMost, "Draw among so many likeliest; 0 for all",
                            "K");
    command->add_option("--top-p", a->options.top_p, "Draw among the likeliest that have this share together")
        ->type_name("P");
    add_whole<std::uint64_t>(*command, "--seed", a->options.seed, 0, std::numeric_limits<std::uint64_t>::max(),
                             "Of the draws", "N");
    command->add_option("--checkpoint", a->checkpoint, "last, best or the file of a checkpoint")->type_name("WHICH");
    command->add_flag("--no-cache", a->no_cache, "Read the whole text anew for each token; the result is the same");
    command->add_flag("--json", a->json, "Print one JSON object");
    command->add_flag("--logits", a->logits,
                      "With --json: also the ids of the tokens, and the logits of the first behind the prompt");
    command->footer(example({"invar sample runs/gpt \"Once upon a time\"",
                             "invar sample runs/gpt \"The\" --temperature 0.8 --top-k 40 --seed 3",
                             "invar sample models/gpt2 \"The\" trainer.precision=bf16-mixed"}));
    command->callback([a] { sample_text(*a); });
}

}  // namespace invar::cli
