// `invar profile`: one training step by operation, held against what the device can do at best.
#include "invar/diagnose/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/start_up.h"
#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/jsonl.h"
#include "invar/report/chrome_trace.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kColumns = 80;
constexpr const char* kBetween = "between operations";

struct ProfileArguments : ConfigArguments {
    int steps = ProfileOptions{}.steps, warmup = ProfileOptions{}.warmup, top = 20;
    std::string by = "all", trace;
    bool json = false;
};

std::string module_name(const std::string& module) {
    return module.empty() ? "(model)" : module;
}

const char* short_name(StepPart part) {
    constexpr const char* kName[] = {"", " fwd", " bwd", ""};
    return kName[int(part)];
}

std::string milliseconds(double seconds) {
    return fmt::format("{:.3f}", 1e3 * seconds);
}

std::string three_digits(double value) {
    return value < 9.995   ? fmt::format("{:.2f}", value)
           : value < 99.95 ? fmt::format("{:.1f}", value)
                           : fmt::format("{:.0f}", value);
}

// In the unit of what limits it.
std::string rate_of(const ProfileRow& row) {
    if (row.floor <= 0 || row.seconds <= 0) return "-";
    const double rate = (row.by_compute() ? row.flops : row.bytes) / row.seconds;
    const char* const unit = row.by_compute() ? "F/s" : "B/s";
    return rate >= 1e12 ? fmt::format("{} T{}", three_digits(1e-12 * rate), unit)
                        : fmt::format("{} G{}", three_digits(1e-9 * rate), unit);
}

std::string percent(double share) {
    return fmt::format("{:.1f}%", 100 * share);
}

std::string roofline_of(const ProfileRow& row) {
    return row.floor <= 0 || row.seconds <= 0 ? "-" : fmt::format("{:.0f}%", 100 * row.floor / row.seconds);
}

// The end of a long path tells more than its beginning.
std::string tail_of(const std::string& text, std::size_t columns) {
    return text.size() <= columns ? text : ".." + text.substr(text.size() - columns + 2);
}

struct Cells {
    std::string module, op, dtype, ms, share, calls, rate, roofline;
};

Cells cells_of(const ProfileRow& row, double total) {
    return {module_name(row.module),      row.op + short_name(row.part),    row.dtype,    milliseconds(row.seconds),
            percent(row.seconds / total), fmt::format("{:.0f}", row.calls), rate_of(row), roofline_of(row)};
}

std::string table_of(const Profile& profile, ProfileBy by, int top) {
    const std::vector<ProfileRow> rows = grouped(profile.rows, by);
    const double total = profile.total();
    const bool modules = by == ProfileBy::all || by == ProfileBy::module;
    const bool ops = by == ProfileBy::all || by == ProfileBy::op,
               dtypes = by == ProfileBy::all || by == ProfileBy::dtype;
    const std::size_t shown = std::min(rows.size(), std::size_t(top));
    std::vector<Cells> lines;
    for (std::size_t i = 0; i < shown; ++i) lines.push_back(cells_of(rows[i], total));
    // What stands at the foot has its name where there is room for it.
    const auto foot = [&](const std::string& name, double seconds, const ProfileRow& sum) {
        Cells cells = cells_of(sum, total);
        cells.module = cells.op = cells.dtype = "";
        (ops ? cells.op : modules ? cells.module : cells.dtype) = name;
        cells.ms = milliseconds(seconds), cells.share = percent(seconds / total);
        if (sum.calls == 0) cells.calls = cells.rate = cells.roofline = "";
        lines.push_back(cells);
    };
    if (shown < rows.size()) {
        ProfileRow rest;
        for (std::size_t i = shown; i < rows.size(); ++i) rest.add(rows[i]);
        rest.floor = 0;  // of all sorts
        foot(fmt::format("{} more", rows.size() - shown), rest.seconds, rest);
    }
    foot(kBetween, profile.between, {});
    foot("step", total, {});

    std::vector<std::string Cells::*> columns;
    std::vector<std::string> header;
    const auto column = [&](const char* title, std::string Cells::*cell, bool wanted = true) {
        if (wanted) header.emplace_back(title), columns.push_back(cell);
    };
    column("module", &Cells::module, modules), column("operation", &Cells::op, ops);
    column("dtype", &Cells::dtype, dtypes);
    column("ms", &Cells::ms), column("share", &Cells::share), column("calls", &Cells::calls);
    column("rate", &Cells::rate), column("roof", &Cells::roofline);
    // The first column has what the others leave of the line.
    std::size_t others = 0;
    for (std::size_t i = 1; i < columns.size(); ++i) {
        std::size_t width = header[i].size();
        for (const Cells& line : lines) width = std::max(width, (line.*columns[i]).size());
        others += width + 2;
    }
    constexpr std::size_t kLeast = 12;
    const std::size_t room = others + kLeast < kColumns ? kColumns - others : kLeast;
    Table table(header);
    for (const Cells& line : lines) {
        std::vector<std::string> cells;
        for (const auto cell : columns) cells.push_back(line.*cell);
        cells[0] = tail_of(cells[0], room);
        table.row(cells);
    }
    return table.text();
}

std::string rates_of(const Card& card) {
    std::string text;
    for (const auto& [name, rate] :
         {std::pair{"f32", card.fp32}, {"tf32", card.tf32}, {"f16", card.fp16}, {"bf16", card.bf16}})
        if (rate > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, three_digits(1e-9 * rate));
    return fmt::format("products {} GFLOP/s; copy {} GB/s", text, three_digits(1e-9 * card.copy));
}

// What was measured to be furthest from its floor, and all of it together.
std::vector<std::string> gap_sentences(const Profile& profile) {
    std::vector<std::string> sentences;
    const auto widest = std::ranges::max_element(profile.rows, {}, &ProfileRow::over_floor);
    if (widest != profile.rows.end() && widest->over_floor() > 0)
        sentences.push_back(fmt::format(
            "largest gap: {}{} in {} ({}) takes {} ms,\n  {} ms more than the {} ms that {} alone would take",
            widest->op, short_name(widest->part), module_name(widest->module), widest->dtype,
            milliseconds(widest->seconds), milliseconds(widest->over_floor()), milliseconds(widest->floor),
            widest->by_compute() ? "its arithmetic" : "its memory traffic"));
    double floors = 0, over = 0;
    for (const ProfileRow& row : profile.rows) floors += row.floor, over += row.over_floor();
    sentences.push_back(fmt::format("all floors together are {} ms; operations are {} ms above theirs",
                                    milliseconds(floors), milliseconds(over)));
    return sentences;
}

bool past_roof(const Profile& profile) {
    return std::ranges::any_of(profile.rows, [](const ProfileRow& row) { return row.floor > 1.005 * row.seconds; });
}

void show(const Profile& profile, const ProfileArguments& a, ProfileBy by, const Config& config) {
    say(fmt::format("{}, {}, {} a step, on {} with {}; median of {}", config.model.name(), profile.precision,
                    count_of(profile.samples, "sample"), profile.device, count_of(profile.threads, "thread"),
                    count_of(a.steps, "step")));
    say_why_on_cpu(config);
    say("measured here: " + rates_of(profile.rates));
    print(table_of(profile, by, a.top));
    say("");
    say("GF/s (billions of operations) where arithmetic limits, GB/s where memory does");
    say(fmt::format(
        "a step takes {} ms unwatched and {} ms watched; by medians of rows,\n  {} ms in operations and {} ms between "
        "them",
        milliseconds(profile.step), milliseconds(profile.watched), milliseconds(profile.operations()),
        milliseconds(profile.between)));
    for (const std::string& sentence : gap_sentences(profile)) say(sentence);
    if (past_roof(profile)) say("above 100%: faster than the product or copy measured here, as data in caches are");
    if (const std::string why = disturbance_of(profile.waited_share, "this program"); !why.empty())
        say(fmt::format("times were disturbed: {}", why));
}

std::string json_of(const ProfileRow& row, const Profile& profile) {
    JsonLine line;
    line.add("module", row.module)
        .add("operation", row.op)
        .add("part", name_of(row.part))
        .add("dtype", row.dtype)
        .add("ms", 1e3 * row.seconds)
        .add("share", row.seconds / profile.total())
        .add("calls", row.calls)
        .add("flops", row.flops)
        .add("bytes", row.bytes);
    if (row.floor > 0)
        line.add("floor_ms", 1e3 * row.floor)
            .add("limit", row.by_compute() ? "compute" : "memory")
            .add("roofline", row.floor / row.seconds);
    return line.text();
}

std::string json_of(const Profile& profile, const std::string& trace) {
    JsonLine rates;
    for (const auto& [name, rate] : {std::pair{"f32", profile.rates.fp32},
                                     {"tf32", profile.rates.tf32},
                                     {"f16", profile.rates.fp16},
                                     {"bf16", profile.rates.bf16}})
        if (rate > 0) rates.add(name, rate);
    JsonLine line;
    line.add("step_ms", 1e3 * profile.step)
        .add("watched_ms", 1e3 * profile.watched)
        .add("operations_ms", 1e3 * profile.operations())
        .add("between_ms", 1e3 * profile.between)
        .add("between_share", profile.between / profile.total())
        .add("samples_per_step", profile.samples)
        .add("precision", profile.precision)
        .add("product_flops_per_s", rates)
        .add("copy_bytes_per_s", profile.rates.copy);
    if (std::isfinite(profile.waited_share)) line.add("waited_share", profile.waited_share);
    return line.add("device", profile.device).add("threads", profile.threads).add("trace", trace).text();
}

// Opened before anything runs: a place that cannot be written to is known at once.
std::unique_ptr<AtomicFile> open_trace(const fs::path& file, bool named) {
    std::error_code ignored;
    check<UsageError>(!fs::is_directory(file, ignored), "--trace {}: is a folder; name a file", file.string());
    if (!named && file.has_parent_path()) make_folders(file.parent_path());
    try {
        return std::make_unique<AtomicFile>(file);
    } catch (const IoError& error) {
        fail<UsageError>("--trace: {}", error.what());
    }
}

int profile_command(const ProfileArguments& a) {
    ProfileOptions options;
    options.base = a.load();
    options.steps = a.steps;
    options.warmup = a.warmup;
    const ProfileBy by = parse_profile_by(a.by);
    check<UsageError>(a.steps >= 1, "--steps {}: must be at least 1", a.steps);
    check<UsageError>(a.warmup >= 0, "--warmup {}: must be at least 0", a.warmup);
    check<UsageError>(a.top >= 1, "--top {}: must be at least 1", a.top);
    const fs::path file = !a.trace.empty()
                              ? fs::path(a.trace)
                              : fs::path(options.base.output_dir) / (options.base.exp_name + "_trace.json");
    const std::unique_ptr<AtomicFile> trace = open_trace(file, !a.trace.empty());
    LiveLine line;
    const Profile profile = run_profile(options, [&](double share) {
        if (!a.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    });
    line.clear();
    trace->write(chrome_trace(profile, fmt::format("{} {}", options.base.model.name(), profile.precision)));
    trace->commit();
    if (a.json) {
        for (const ProfileRow& row : profile.rows) say(json_of(row, profile));
        say(json_of(profile, file.string()));
        return 0;
    }
    show(profile, a, by, options.base);
    say(fmt::format("the trace of one step is in {}; open it in chrome://tracing or Perfetto", file.string()));
    return 0;
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("profile", "Time each operation of a step, against what the device can do");
    auto arguments = std::make_shared<ProfileArguments>();
    ProfileArguments& a = *arguments;
    a.add_to(*command);
    command->add_option("--steps", a.steps, "Profiled steps; times are medians over them")->option_text("N");
    command->add_option("--warmup", a.warmup, "Steps before that, not timed")->option_text("N");
    command->add_option("--by", a.by, "Add rows up by one name: op, module or dtype; by all of them without it")
        ->option_text("all|op|module|dtype");
    command->add_option("--top", a.top, "Rows to show; the rest is summed up")->option_text("N");
    command->add_option("--trace", a.trace, "Where the Chrome trace goes; output_dir/exp_name_trace.json without it")
        ->option_text("FILE");
    command->add_flag("--json", a.json, "One JSON object a line: all rows, then the step");
    command->footer(example({"invar profile fashion_mnist", "invar profile gpt data=chains --by op",
                             "invar profile fashion_mnist trainer.precision=16-mixed --top 10 --trace step.json"}) +
                    read_more("PROFILE.md", "tells what is measured and how"));
    command->callback([arguments, &exit_code] { exit_code = profile_command(*arguments); });
}

}  // namespace invar::cli
