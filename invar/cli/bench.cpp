// `invar bench`: what a training step costs under each precision, side by side.
#include "invar/train/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/start_up.h"
#include "invar/core/cpu_use.h"
#include "invar/dist/strategy.h"
#include "invar/report/text.h"
#include "invar/train/run_folder.h"

namespace invar::cli {

namespace {

struct BenchArguments : ConfigArguments {
    std::vector<std::string> precisions = BenchOptions{}.precisions, recompute;
    int steps = BenchOptions{}.steps, warmup = BenchOptions{}.warmup;
    bool json = false;
};

// Of the time in which something travels between ranks, that in which they wait for it. A little of the waiting is for
// the thread that sends.
double exposed_share(const BenchResult& r) {
    return r.exchange_ms > 0 ? std::min(1.0, r.exposed_ms / r.exchange_ms) : 0.0;
}

std::string json_of(const BenchResult& r) {
    JsonLine line;
    line.add("precision", r.precision)
        .add("recompute", r.recompute)
        .add("ms_per_step", r.ms_per_step)
        .add("samples_per_s", r.samples_per_s);
    line.add("ratio", r.ratio).add("fastest_ms", r.fastest_ms).add("samples_per_step", r.samples_per_step);
    if (!r.rate.of_samples()) line.add(r.rate.name(), r.rate.per_second);
    if (r.graph_parts > 0) line.add("graph_parts", r.graph_parts);
    line.add("flops_per_step", r.flops_per_step).add("flops_per_s", r.flops_per_s);
    line.add("product_flops_per_s", r.product_flops_per_s).add("product_share", r.flops_per_s / r.product_flops_per_s);
    if (r.memory_used > 0) line.add("card_bytes", r.memory_used);
    if (r.ranks > 1)
        line.add("ranks", r.ranks)
            .add("exchange_ms", r.exchange_ms)
            .add("exposed_ms", r.exposed_ms)
            .add("exposed_share", exposed_share(r));
    if (std::isfinite(r.waited_share)) line.add("waited_share", r.waited_share);
    line.add("peak_bytes", memory_line(r.memory.peak, r.memory.peak_total));
    return line.add("device", r.device).add("threads", r.threads).text();
}

std::string disturbance(const std::vector<BenchResult>& results) {
    return disturbance_of(results.front().waited_share, "this program");
}

// Rates in one unit for all rows, the one that suits the largest.
std::string table_of(const std::vector<BenchResult>& results) {
    bool large = false;
    for (const BenchResult& r : results) large = large || r.product_flops_per_s >= 1e12;
    bool levels = false;
    for (const BenchResult& r : results) levels = levels || r.recompute != results.front().recompute;
    std::vector<std::string> header = {
        "precision", "ms/step", results.front().rate.unit + "/s", "vs FP32", large ? "TFLOP/s" : "GFLOP/s",
        "of product"};
    if (levels) header.insert(header.begin() + 1, "recompute");
    const bool ranks = results.front().ranks > 1;
    if (ranks) header.insert(header.end(), {"exchange", "not hidden"});
    for (int i = 0; i < kPurposes; ++i) header.push_back(std::string(name_of(Purpose(i))));
    header.push_back("total");
    const bool card = results.front().memory_used > 0;
    const bool disturbed = !disturbance(results).empty();
    if (card) header.push_back("card");
    Table table(header);
    for (const BenchResult& r : results) {
        std::vector<std::string> cells = {
            r.precision,
            fmt::format("{:.{}f}", r.ms_per_step, r.ms_per_step < 1 ? 4 : 2),
            human_rate(r.rate.per_second),
            disturbed     ? "disturbed"
            : r.ratio > 0 ? fmt::format("{:.2f}x", r.ratio)
                          : "-",
            fmt::format("{:.1f}", r.flops_per_s * (large ? 1e-12 : 1e-9)),
            disturbed ? "-" : fmt::format("{:.1f}%", 100 * r.flops_per_s / r.product_flops_per_s)};
        if (levels) cells.insert(cells.begin() + 1, r.recompute);
        if (ranks) {
            cells.push_back(fmt::format("{:.2f} ms", r.exchange_ms));
            cells.push_back(fmt::format("{:.0f}%", 100 * exposed_share(r)));
        }
        for (const std::int64_t bytes : r.memory.peak) cells.push_back(human_bytes(double(bytes)));
        cells.push_back(human_bytes(double(r.memory.peak_total)));
        if (card) cells.push_back(human_bytes(double(r.memory_used)));
        table.row(cells);
    }
    std::vector<std::string> left_out;
    const std::string text =
        table.fitted("  ",
                     {"data", "workspace", "masters", "gradients", "weights", "optimizer", "of product",
                      large ? "TFLOP/s" : "GFLOP/s", "activations", results.front().rate.unit + "/s"},
                     std::string::npos, &left_out);
    return text + no_room_for(left_out);
}

int bench(const BenchArguments& arguments) {
    BenchOptions options;
    options.base = arguments.load();
    options.precisions = arguments.precisions;
    options.recompute = arguments.recompute;
    options.steps = arguments.steps;
    options.warmup = arguments.warmup;
    LiveLine line;
    const auto progress = [&](double share) {
        if (!arguments.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    };
    const std::vector<BenchResult> results = run_bench(options, progress);
    line.clear();
    if (arguments.json) {
        for (const BenchResult& result : results) say(json_of(result));
        return 0;
    }
    const BenchResult& first = results.front();
    const std::string ranks = first.ranks > 1 ? fmt::format(" by {} ranks ({}), each", first.ranks,
                                                            name_of(parse_strategy(options.base.trainer.strategy)))
                                              : "";
    say(fmt::format("{}, {} a step,{} on {} with {}; median of {}", options.base.model.name(),
                    count_of(first.samples_per_step, "sample"), ranks, first.device, count_of(first.threads, "thread"),
                    count_of(options.steps, "step")));
    say_why_on_cpu(options.base);
    if (first.graph_parts > 0)
        say(fmt::format("replayed as a CUDA graph of {} parts; each time is the mean of a stretch of steps",
                        first.graph_parts));
    print(table_of(results));
    if (first.ranks > 1)
        say("samples and arithmetic are those of all ranks, memory that of the one that holds the most; not hidden: "
            "the "
            "share of the exchange that ranks wait for");
    if (const std::string why = disturbance(results); !why.empty())
        say(fmt::format("times were disturbed and are not compared: {}", why));
    return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("bench", "Time a training step and its memory under each precision");
    auto arguments = std::make_shared<BenchArguments>();
    BenchArguments& a = *arguments;
    a.add_to(*command);
    command->add_option("--precisions", a.precisions, "What to measure; ratios are to 32-true")
        ->option_text("PRECISION,...")
        ->delimiter(',')
        ->allow_extra_args(false);  // what follows is for the configuration
    command->add_option("--recompute", a.recompute, "Levels to measure for each precision: none, light or block")
        ->option_text("LEVEL,...")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--steps", a.steps, "Timed steps of each precision")->option_text("N");
    command->add_option("--warmup", a.warmup, "Steps of each before that, not timed")->option_text("N");
    command->add_flag("--json", a.json, "One JSON object a line and precision");
    command->footer(
        example({"invar bench", "invar bench model=mlp model.hidden=[2048,2048] data.batch_size=512 --steps 50",
                 "invar bench fashion_mnist --precisions 32-true,bf16-mixed --json",
                 "invar bench gpt data=chains --precisions bf16-mixed --recompute none,light,block",
                 "mpirun -n 2 invar bench fashion_mnist trainer.strategy=zero1"}));
    command->callback([arguments, &exit_code] { exit_code = bench(*arguments); });
}

}  // namespace invar::cli
