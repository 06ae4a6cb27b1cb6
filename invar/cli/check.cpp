// `invar check`: is what a configuration describes sound? Run before anything else, on one's own model above all.
#include "invar/diagnose/check.h"

#include <fmt/format.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/preflight.h"
#include "invar/cli/start_up.h"
#include "invar/dist/launcher.h"
#include "invar/io/jsonl.h"
#include "invar/tasks/registry.h"
#include "invar/train/run_folder.h"

namespace invar::cli {

namespace {

struct CheckArguments : ConfigArguments {
    bool json = false;
    std::int64_t samples = CheckOptions{}.samples;
};

std::string painted(Mark mark) {
    const Colour colour = mark == Mark::pass ? Colour::green : mark == Mark::warn ? Colour::yellow : Colour::red;
    return paint(colour, name_of(mark));
}

JsonLine json_of(const DataCheck& data) {
    JsonLine line, tensors;
    for (const TensorSummary& t : data.tensors) {
        JsonLine tensor;
        tensor.add("dtype", name_of(t.dtype)).add("shape", t.shape.str()).add("min", t.min).add("max", t.max);
        tensor.add("mean", t.mean).add("not_finite", t.not_finite);
        if (!t.labels.empty()) {
            JsonLine labels;
            for (const auto& [value, label] : t.labels) labels.add(std::to_string(value), label.samples);
            tensor.add("labels", labels);
        }
        tensors.add(t.name, tensor);
    }
    return line.add("samples", data.samples).add("read", data.read).add("tensors", tensors);
}

// The figures behind each check's line, by its name.
std::vector<std::pair<std::string, JsonLine>> figures_of(const TaskCheck& c) {
    std::vector<std::pair<std::string, JsonLine>> all;
    const auto line = [&](std::string_view name) -> JsonLine& {
        return all.emplace_back(std::string(name), JsonLine()).second;
    };
    for (const DataCheck& data : c.data) line(name_of(data.split)) = json_of(data);
    line("shapes").add("output", c.shapes.output.str()).add("classes", c.shapes.classes).add("loss", c.shapes.loss);
    line("gradient")
        .add("directions", c.gradient.directions)
        .add("difference", c.gradient.difference)
        .add("parameter", c.gradient.parameter)
        .add("backward", c.gradient.backward)
        .add("slope", c.gradient.slope);
    line("split").add("difference", c.split.difference).add("factor", c.split.factor);
    line("learning").add("first", c.learning.first).add("last", c.learning.last).add("steps", c.learning.steps);
    line("run").add("steps", c.run.steps).add("kind", c.run.kind).add("module", c.run.module);
    line("memory")
        .add("samples", c.memory.samples)
        .add("step_seconds", c.memory.seconds)
        .add("peak_bytes", memory_line(c.memory.memory.peak, c.memory.memory.peak_total));
    line("seed").add("steps", c.seed.steps).add("differs", c.seed.differs);
    line("resume").add("steps", c.resume.steps).add("differs", c.resume.differs);
    return all;
}

std::string json_line(std::string_view wanted, const TaskCheck& all) {
    const Checked& checked = all.find(wanted);
    JsonLine line;
    line.add("check", wanted).add("mark", name_of(checked.mark)).add("text", checked.text);
    for (const auto& [name, figures] : figures_of(all))
        if (name == wanted) line.add("figures", figures);
    return line.text();
}

int check_command(const CheckArguments& a, int& exit_code) {
    if (launch_from_environment().size > 1) return preflight_command(a, a.json, exit_code);
    const Config config = a.load();
    CheckOptions options;
    options.samples = a.samples;
    LiveLine live;
    if (!a.json) say_why_on_cpu(config);
    options.progress = [&](std::string_view name) {
        if (!a.json) live.show({fmt::format("checking: {}", name)});
    };
    // Each line when it is known: whoever reads along, or ends this early, has it.
    options.made = [&](std::string_view name, const TaskCheck& so_far) {
        live.clear();
        if (a.json)
            say(json_line(name, so_far));
        else
            say(fmt::format("{}  {:<9} {}", painted(so_far.find(name).mark), name, so_far.find(name).text));
    };
    return check_task(make_task(config), config, options).mark() == Mark::fail ? 1 : 0;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("check", "See in a minute whether data, model and loss are sound");
    auto arguments = std::make_shared<CheckArguments>();
    arguments->add_to(*command);
    command->add_option("--samples", arguments->samples, "Samples of each split to read, at most")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    command->add_flag("--json", arguments->json, "Print one JSON object for each check");
    command->footer(
        example({"invar check fashion_mnist", "invar check data=synthetic model=mlp --json", "mpirun -n 4 invar check fashion_mnist"}) +
        "\n\nExits with 1 where a check fails, and with 0 where all pass or only warn.\nUnder mpirun or srun it "
        "looks instead at what every rank has and at how they reach each other." +
        read_more("CHECK.md", "tells what each check does") + read_more("RANKS.md", "what is looked at of ranks"));
    command->callback([arguments, &exit_code] { exit_code = check_command(*arguments, exit_code); });
}

}  // namespace invar::cli
