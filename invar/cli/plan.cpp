// `invar plan`: memory, traffic and time of a run on so many ranks, before anything runs.
#include "invar/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/jsonl.h"
#include "invar/kernels/devices.h"
#include "invar/report/plan_page.h"
#include "invar/report/text.h"
#include "invar/train/run_folder.h"

namespace invar::cli {

namespace {

struct PlanArguments : ConfigArguments {
    std::vector<std::string> precisions, strategies = {"ddp", "zero1", "zero2"};
    int ranks = 1;
    std::optional<int> node;  // these four: the card's own
    std::optional<double> link, network, memory;
    std::string card, wire, html;
    bool json = false, quick = false;
};

std::string json_of(const std::string& table, const PlanRow& r, const SpeedUnit& unit) {
    JsonLine line;
    line.add("table", table)
        .add("precision", r.precision)
        .add("strategy", std::string(name_of(r.ranks.strategy)))
        .add("ranks", r.ranks.count)
        .add("fits", r.fits)
        .add("eager", r.eager);
    if (r.largest_batch > 0) line.add("largest_batch", r.largest_batch);
    line.add("peak_bytes", memory_line(r.memory.peak, r.memory.total));
    line.add("evaluation_bytes", r.memory.evaluation).add("card_bytes", r.memory.held);
    line.add("wire_bytes", r.wire.total()).add("wire_reduced", r.wire.reduced).add("wire_gathered", r.wire.gathered);
    line.add("ms_per_step", 1e3 * r.time.total()).add("compute_ms", 1e3 * r.time.compute.total());
    line.add("forward_ms", 1e3 * r.time.compute.forward).add("backward_ms", 1e3 * r.time.compute.backward);
    line.add("update_ms", 1e3 * r.time.compute.update).add("communication_ms", 1e3 * r.time.communication);
    line.add("exposed_ms", 1e3 * r.time.exposed);
    return line.add(unit.name + "_per_s", r.per_second).add("scaling", r.scaling).text();
}

std::string milliseconds(double seconds) {
    return fmt::format("{:.{}f}", 1e3 * seconds, seconds < 1e-2 ? 3 : 1);
}

std::string batch_text(std::int64_t largest) {
    return largest >= kMostBatch ? fmt::format("{}+", kMostBatch) : largest > 0 ? std::to_string(largest) : "-";
}

// At the number of ranks that was asked for.
std::string table_of(const Plan& plan, bool searched) {
    std::vector<std::string> header = {"precision", "strategy", "fits"};
    if (searched) header.emplace_back("batch");
    for (int i = 0; i < kPurposes; ++i) header.push_back(std::string(name_of(Purpose(i))));
    for (const char* more : {"total", "eval", "card", "wire", "exposed", "ms/step"}) header.emplace_back(more);
    header.push_back(plan.unit.name + "/s");
    Table table(header);
    for (const PlanRow& r : plan.rows) {
        std::vector<std::string> cells = {r.precision, std::string(name_of(r.ranks.strategy)), how_it_fits(r)};
        if (searched) cells.push_back(batch_text(r.largest_batch));
        for (const std::int64_t bytes : r.memory.peak) cells.push_back(human_bytes(double(bytes)));
        for (const std::int64_t bytes : {r.memory.total, r.memory.evaluation, r.memory.held})
            cells.push_back(human_bytes(double(bytes)));
        cells.push_back(human_bytes(r.wire.total()));
        cells.push_back(r.fits ? milliseconds(r.time.exposed) : "-");
        cells.push_back(r.fits ? milliseconds(r.time.total()) : "-");
        cells.push_back(r.fits ? human_rate(r.per_second) : "-");
        table.row(cells);
    }
    std::vector<std::string> left_out;
    const std::string text = table.fitted("  ",
                                          {"data", "workspace", "masters", "gradients", "weights", "optimizer",
                                           "activations", "eval", "exposed", "total", "wire"},
                                          std::string::npos, &left_out);
    return text + no_room_for(left_out);
}

// From 1 to 1024 ranks, a column for each strategy of these precisions: how fast, how much of as many single ranks.
std::string scaling_table(const Plan& plan, const std::set<std::string>& precisions) {
    std::vector<std::string> header = {"ranks"};
    for (const PlanRow& r : plan.rows)
        if (precisions.contains(r.precision))
            header.push_back(fmt::format("{} {}", r.precision, name_of(r.ranks.strategy)));
    Table table(header);
    for (int ranks = 1; ranks <= kMostRanks; ranks *= 2) {
        std::vector<std::string> cells = {std::to_string(ranks)};
        for (const PlanRow& r : plan.scaling)
            if (r.ranks.count == ranks && precisions.contains(r.precision))
                cells.push_back(r.fits ? fmt::format("{} {:3.0f}%", human_rate(r.per_second), 100 * r.scaling)
                                       : "too large");
        table.row(cells);
    }
    return table.text("  ");
}

// One table, or where the terminal is too narrow for it, one for each precision.
std::string scaling_tables(const Plan& plan) {
    std::set<std::string> all;
    for (const PlanRow& r : plan.rows) all.insert(r.precision);
    const std::string whole = scaling_table(plan, all);
    const std::size_t last_row = whole.rfind('\n', whole.size() - 2) + 1;
    const bool fits = !on_terminal() || whole.size() - last_row <= std::size_t(terminal_width()) + 1;
    if (all.size() == 1 || fits) return whole;
    std::string tables, last;
    for (const PlanRow& r : plan.rows)
        if (std::exchange(last, r.precision) != r.precision)
            tables += (tables.empty() ? "" : "\n") + scaling_table(plan, {r.precision});
    return tables;
}

Card card_for(const PlanArguments& a, const Config& config, const std::vector<Precision>& precisions) {
    Card card;
    if (a.card.empty()) {
        set_threads(int(config.trainer.threads));
        card = measured_card(resolve_device(config.trainer.device), precisions);
    } else {
        check<UsageError>(config.trainer.device != "cpu", "--card {} and trainer.device=cpu: plan for one of the two",
                          a.card);
        card = card_named(a.card);
    }
    check<UsageError>(a.node.value_or(1) >= 1, "--node {}: must be at least 1", a.node.value_or(1));
    constexpr double kLeast = 1e-3, kMost = 1e6;
    for (const auto& [flag, value] : {std::pair{"--link", a.link}, {"--network", a.network}, {"--memory", a.memory}})
        check<UsageError>(!value || (*value >= kLeast && *value <= kMost), "{} {}: must be {} to {:.0f}", flag,
                          value.value_or(0), kLeast, kMost);
    if (a.node) card.node = *a.node;
    if (a.link) card.link = 1e9 * *a.link;
    if (a.network) card.network = 1e9 * *a.network;
    if (a.memory) card.memory = std::int64_t(*a.memory * double(std::int64_t(1) << 30));
    check<UsageError>(card.usable() > 0, "--memory {}: driver and libraries take {} of it, and nothing is left",
                      a.memory.value_or(0), human_bytes(double(card.reserved)));
    return card;
}

// Only what the tables do not contradict: a smaller batch unless it was looked for and not even one sample fits, ranks
// unless 1024 are too few.
std::string what_may_help(const Plan& plan, const Config& config, bool searched) {
    std::vector<std::string> ways;
    const auto has_batch = [](const PlanRow& row) { return row.largest_batch > 0; };
    if (!searched || std::any_of(plan.rows.begin(), plan.rows.end(), has_batch)) ways.emplace_back("a smaller batch");
    if (config.trainer.recompute == "none") ways.emplace_back("trainer.recompute=block");
    const PlanRow* fewest = nullptr;
    for (const PlanRow& row : plan.scaling)
        if (row.fits && (fewest == nullptr || row.ranks.count < fewest->ranks.count)) fewest = &row;
    if (fewest != nullptr)
        ways.push_back(fmt::format("{} ranks with {}", fewest->ranks.count, name_of(fewest->ranks.strategy)));
    ways.emplace_back("a larger card");
    return fmt::format("nothing fits; use {}", fmt::join(ways, " or "));
}

void show(const Plan& plan, const Config& config, bool searched) {
    const Card& card = plan.card;
    say(fmt::format("{}, {} parameters, {} a step and rank, on {} of {}{}", config.model.name(),
                    human_count(plan.parameters), count_of(plan.samples_per_step, "sample"),
                    count_of(plan.ranks, "rank"), card.is_cpu() ? "this CPU" : card.title,
                    card.measured ? ", timed now" : ""));
    say(fmt::format("memory of a rank by purpose, of {} ({} more for driver and libraries){}",
                    human_bytes(double(card.usable())), human_bytes(double(card.reserved)),
                    searched ? "; batch: the largest that fits" : ""));
    print(table_of(plan, searched));
    if (std::ranges::any_of(plan.rows, &PlanRow::eager)) say("eagerly: there is no room for the recording of a step");
    if (std::ranges::any_of(plan.scaling, &PlanRow::fits)) {
        say("");
        say(
            fmt::format("{}/s of all ranks, and their share of as many times one rank: {} of a node at {:.3g} GB/s, "
                        "{:.3g} GB/s a card between nodes",
                        plan.unit.name, count_of(card.node, "card"), 1e-9 * card.link, 1e-9 * card.network));
        print(scaling_tables(plan));
    }
    if (!plan.any_fits()) say(paint(Colour::red, what_may_help(plan, config, searched)));
}

int plan_command(const PlanArguments& a) {
    PlanOptions options;
    options.base = a.load();
    options.precisions = a.precisions;
    if (options.precisions.empty()) options.precisions = {options.base.trainer.resolved_precision().name()};
    options.strategies.clear();
    for (const std::string& text : a.strategies)
        if (const Strategy strategy = parse_strategy(text); std::ranges::count(options.strategies, strategy) == 0)
            options.strategies.push_back(strategy);
    std::string wire = a.wire.empty() ? options.base.trainer.reduce_precision : a.wire;
    std::ranges::transform(wire, wire.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    const bool bf16 = wire == "bf16" || wire == "bf16-mixed";
    check<UsageError>(bf16 || wire == "fp32" || wire == "32-true", "--wire {}: gradients travel as fp32 or bf16",
                      a.wire);
    options.gradient_bytes = bf16 ? 2 : 4;
    options.ranks = a.ranks;
    options.largest_batch = !a.quick;
    std::vector<Precision> precisions;
    for (const std::string& text : options.precisions) precisions.push_back(Precision::parse(text));
    options.card = card_for(a, options.base, precisions);
    LiveLine line;
    const Plan plan = make_plan(options, [&](double share) {
        if (!a.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    });
    line.clear();
    if (!a.html.empty()) write_file_atomically(a.html, plan_page(plan, options.base.model.name()));
    if (a.json) {
        for (const PlanRow& row : plan.rows) say(json_of("strategies", row, plan.unit));
        for (const PlanRow& row : plan.scaling) say(json_of("scaling", row, plan.unit));
    } else {
        show(plan, options.base, options.largest_batch);
        if (!a.html.empty()) say(fmt::format("the page is in {}", a.html));
    }
    return plan.any_fits() ? 0 : 1;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("plan", "Tell memory, traffic and time on many ranks before anything runs");
    auto arguments = std::make_shared<PlanArguments>();
    PlanArguments& a = *arguments;
    a.add_to(*command);
    std::string names;
    for (const Card& card : cards())
        names += (names.empty() ? "" : &card == &cards().back() ? " or " : ", ") + card.name;
    command
        ->add_option("--ranks", a.ranks, "Ranks, one on each card; the second table goes from 1 to 1024 all the same")
        ->option_text("N");
    command->add_option("--card", a.card, fmt::format("Plan for this card: {}; without it for this machine's", names))
        ->option_text("NAME");
    const auto list = [&](const char* flag, std::vector<std::string>& to, const char* help, const char* text) {
        command->add_option(flag, to, help)->option_text(text)->delimiter(',')->allow_extra_args(false);
    };
    list("--precisions", a.precisions, "What to plan for; the configuration's own", "PRECISION,...");
    list("--strategies", a.strategies, "Ways to share the work: ddp, zero1 or zero2; all of them", "STRATEGY,...");
    command->add_option("--wire", a.wire, "How gradients travel: fp32 or bf16; the configuration's own")
        ->option_text("FORMAT");
    command->add_option("--node", a.node, "Cards in a node; the card's own")->option_text("N");
    command->add_option("--link", a.link, "GB/s that are reached from a card to the others of its node; the card's own")
        ->option_text("GB/S");
    command->add_option("--network", a.network, "GB/s that are reached from a card to another node; the card's own")
        ->option_text("GB/S");
    command->add_option("--memory", a.memory, "GiB of memory a card; the card's own")->option_text("GIB");
    command->add_option("--html", a.html, "Write the tables with plots as a page")->option_text("FILE");
    command->add_flag("--quick", a.quick, "Leave the search for the largest batch out");
    command->add_flag("--json", a.json,
                      "One JSON object a line: the rows at N ranks (\"table\": \"strategies\"), then those from 1 to "
                      "1024 (\"scaling\")");
    command->footer(example({"invar plan fashion_mnist --card h200",
                             "invar plan gpt data=chains --ranks 64 --card h100 --precisions 32-true,bf16-mixed",
                             "invar plan gpt data=chains --ranks 8 --card a100 --html plan.html"}) +
                    "\n\nExits with 1 where nothing fits." + read_more("PLAN.md", "tells what is counted and how"));
    command->callback([arguments, &exit_code] { exit_code = plan_command(*arguments); });
}

}  // namespace invar::cli
