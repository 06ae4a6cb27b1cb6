#include "invar/cli/start_up.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "invar/cli/console.h"
#include "invar/dist/launcher.h"
#include "invar/dist/strategy.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/kernels.h"
#include "invar/nn/layers.h"
#include "invar/train/announcement.h"

namespace invar::cli {

namespace {

// From the reason; "" where there is none.
std::string no_gpu_line(const std::string& why_on_cpu) {
    return why_on_cpu.empty() ? "" : "no GPU is used: " + why_on_cpu;
}

// Keys that were set and do nothing here.
std::string idle_lines(Setup& setup, const Config& config) {
    std::vector<std::string> lines;
    const Strategy strategy = parse_strategy(config.trainer.strategy);
    if (setup.ranks->alone() && strategy != Strategy::ddp)
        lines.push_back(fmt::format(
            "trainer.strategy={} has nothing to share out: this is one process (mpirun -n N starts several)",
            config.trainer.strategy));
    if (setup.ranks->alone() && config.trainer.reduce_precision != TrainerConfig{}.reduce_precision)
        lines.push_back(fmt::format("trainer.reduce_precision={} has nothing to send: this is one process",
                                    config.trainer.reduce_precision));
    const auto modules = setup.model->modules();
    const bool norms = std::ranges::any_of(
        modules, [](const auto& each) { return dynamic_cast<const BatchNorm*>(each.second) != nullptr; });
    if (setup.sync_batchnorm && (setup.ranks->alone() || !norms))
        lines.push_back(fmt::format("trainer.sync_batchnorm has nothing to synchronise: {}",
                                    norms ? "this is one process" : "the model has no batch norms"));
    if (const std::string forgotten = launcher_forgotten(); setup.ranks->alone() && !forgotten.empty())
        lines.push_back(forgotten);
    return fmt::format("{}", fmt::join(lines, "\n"));
}

// Where ranks do not train as one process does.
std::string apart_line(const Setup& setup) {
    const std::string why = setup.ranks->alone() ? "" : setup.task->why_loss_is_no_mean();
    return why.empty() ? "" : "each rank's loss is that of its part of a batch, not of the whole: " + why;
}

}  // namespace

std::string amp_lines(const Setup& setup) {
    const std::vector<std::string> lines = announce_precision(setup);
    std::string text = fmt::format("{} Using {}\n", paint(Colour::cyan, "[AMP]"), lines.front());
    for (std::size_t i = 1; i < lines.size(); ++i) text += fmt::format("      - {}\n", lines[i]);
    const std::string device =
        setup.device.is_cpu() ? fmt::format("{} thread{}, {}", threads(), threads() == 1 ? "" : "s", cpu_description())
                              : kernels_for(setup.device).description();
    text += fmt::format("      - device {}{}{}", setup.device.str(), device.empty() ? "" : ": ", device);
    const std::string no_gpu = no_gpu_line(setup.why_on_cpu);
    return no_gpu.empty() ? text : text + "\n      - " + no_gpu;
}

void say_why_on_cpu(const Config& config) {
    if (const std::string line = no_gpu_line(why_on_cpu(config.trainer.device)); !line.empty()) say(line);
}

void say_remarks(const std::vector<Remark>& remarks) {
    for (const Remark& remark : remarks)
        if (remark.warning)
            warn("warning: " + remark.text);
        else
            say(remark.text);
}

std::string shared_by(const Setup& setup) {
    const Sharding& sharding = setup.optimizer->store().sharding();
    return fmt::format("shared by {} ranks ({}, {}{}{})", setup.ranks->size(), setup.ranks->name(),
                       name_of(sharding.strategy), sharding.wire == Dtype::bf16 ? ", gradients sent in BF16" : "",
                       sharding.overlap ? "" : ", after backward");
}

std::string run_lines(Setup& setup, const Config& config) {
    const Loader& data = *setup.train_data;
    const std::int64_t to_validate = setup.test_data->samples_per_epoch();
    std::string text =
        fmt::format("{} with {} parameters on {}: {} samples to train on, {} to validate on\n", config.model.name(),
                    human_count(setup.model->parameter_count()), data.dataset().name(),
                    human_count(data.samples_per_epoch()), to_validate > 0 ? human_count(to_validate) : "none");
    std::string described;
    for (const auto& [name, value] : data.dataset().description())
        described += fmt::format("{}{}: {}", described.empty() ? "" : "; ", name,
                                 value.size() > 60 ? value.substr(0, 60) + "..." : value);
    if (!described.empty()) text += described + "\n";
    for (const Loader* loader : {setup.train_data.get(), setup.test_data.get()})
        for (const std::string& note : loader->dataset().notes()) text += note + "\n";
    text += fmt::format("batches of {}", data.options().batch_size);
    if (setup.accumulate > 1) text += fmt::format(", {} to a step", setup.accumulate);
    if (!setup.ranks->alone()) text += ", " + shared_by(setup);
    text += fmt::format("; {} step{}, {} an epoch", setup.total_steps, setup.total_steps == 1 ? "" : "s",
                        setup.steps_per_epoch);
    for (const std::string& more : {announce_average(setup), apart_line(setup), idle_lines(setup, config)})
        if (!more.empty()) text += "\n" + more;
    return text;
}

}  // namespace invar::cli
