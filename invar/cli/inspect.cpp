// `invar inspect`: weights, gradients or activations of any framework, and what smaller formats would make of them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/formats/tensor_history.h"
#include "invar/io/jsonl.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/report/text.h"

namespace invar::cli {

namespace {

struct InspectArguments {
    std::vector<std::string> files;
    std::string formats = "fp16,bf16,fp8", tensor;
    int top = 20, threads = 0;
    bool json = false;
};

constexpr std::string_view kWhy[] = {"not floating", "of a format that is not judged", "unknown dtype"};

std::string share(double value) {
    if (value == 0) return "-";
    const double percent = 100 * value;
    return percent < 0.01 ? "<0.01%" : percent > 99.99 && value < 1 ? ">99.99%" : fmt::format("{:.2f}%", percent);
}

std::string number(double value) {
    return value == 0 ? "-" : fmt::format("{:.2e}", value);
}

std::string power(int exponent) {
    return exponent == 0 ? "-" : fmt::format("2^{}", exponent);
}

// A long name keeps its end, which tells tensors apart.
std::string short_name(const std::string& name) {
    constexpr std::size_t kMost = 44;
    std::string shown = printable(name);
    if (shown.size() <= kMost) return shown;
    std::size_t begin = shown.size() - kMost + 3;
    while (begin < shown.size() && (static_cast<unsigned char>(shown[begin]) & 0xc0) == 0x80) ++begin;
    return "..." + shown.substr(begin);
}

struct Row {
    const InspectedTensor* tensor;
    Fate fate;
};

std::vector<Row> worst_first(const Inspection& inspection, std::size_t format) {
    std::vector<Row> rows;
    for (const InspectedTensor& tensor : inspection.tensors)
        rows.push_back({&tensor, fate_of(tensor.tally, format, inspection.formats[format])});
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
        if (a.fate.lost() != b.fate.lost()) return a.fate.lost() > b.fate.lost();
        if (a.fate.subnormal != b.fate.subnormal) return a.fate.subnormal > b.fate.subnormal;
        return a.fate.max_error > b.fate.max_error;
    });
    return rows;
}

// Which of them this is about: a name, or how many and where they begin.
std::string files_text(const std::vector<std::string>& files) {
    const std::string first = printable(files.front());
    return files.size() == 1 ? first : fmt::format("{} files from {} on", files.size(), first);
}

void print_format(const Inspection& inspection, std::size_t format, int top, const std::string& files) {
    const Dtype dtype = inspection.formats[format];
    const std::vector<Row> rows = worst_first(inspection, format);
    Table table({"tensor", "dtype", "shape", "largest", "smallest", "overflow", "subnormal", "vanish", "bits",
                 "mean error", "max error", "head-room", "scale", "then lost"});
    const auto add = [&](const InspectedTensor& tensor, const Fate& fate, bool total) {
        const Tally& tally = tensor.tally;
        std::vector<std::string> row = {short_name(tensor.name), total ? "" : std::string(name_of(tensor.dtype)),
                                        total ? "" : tensor.shape.str()};
        if (fate.empty)
            row.insert(row.end(),
                       {tally.values == 0 ? "empty" : "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"});
        else
            row.insert(row.end(), {number(tally.largest), number(tally.smallest), share(fate.overflow),
                                   share(fate.subnormal), share(fate.vanish), fmt::format("{:.1f}", fate.bits),
                                   number(fate.mean_error), number(fate.max_error), fmt::format("{}", fate.head_room),
                                   power(fate.scale), fate.scale == 0 ? "-" : share(fate.lost_after)});
        table.row(row);
    };
    const std::size_t shown = top == 0 ? rows.size() : std::min(rows.size(), std::size_t(top));
    for (std::size_t i = 0; i < shown; ++i) add(*rows[i].tensor, rows[i].fate, false);
    add(inspection.total, fate_of(inspection.total.tally, format, dtype), true);
    say(paint(Colour::bold, fmt::format("{} as {}", files, name_of(dtype))));
    print(
        table.fitted("  ", {"max error", "dtype", "smallest", "mean error", "bits", "shape", "largest", "head-room"}));
    if (shown < rows.size()) {
        const auto more = std::int64_t(rows.size() - shown);
        say(fmt::format("  {} {} no worse; --top 0 shows all", count_of(more, "more tensor"),
                        more == 1 ? "is" : "are"));
    }
    say("");
}

std::string speed(const Inspection& inspection) {
    const double bytes = double(inspection.bytes);
    return fmt::format("{} in {}, {}/s", human_bytes(bytes), human_seconds(inspection.seconds),
                       human_bytes(bytes / std::max(inspection.seconds, 1e-9)));
}

// One line for all tensors left out for the same reason, with their dtypes in the order in which they were met.
void say_left_out(const Inspection& inspection, LeftOut::Why why) {
    std::vector<std::string_view> dtypes;
    std::int64_t count = 0;
    for (const LeftOut& tensor : inspection.left_out) {
        if (tensor.why != why) continue;
        ++count;
        if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) dtypes.push_back(tensor.dtype);
    }
    if (count > 0)
        say(fmt::format("{} left out, {}: {}", count_of(count, "tensor"), kWhy[int(why)], fmt::join(dtypes, ", ")));
}

// A line for each dtype that nobody knows, with the first tensor that has it. A damaged header may hold any number.
void warn_of_unknown_dtypes(const Inspection& inspection) {
    constexpr std::size_t kMost = 5;
    std::map<std::string_view, std::vector<const LeftOut*>> by_dtype;
    for (const LeftOut& tensor : inspection.left_out)
        if (tensor.why == LeftOut::Why::unknown_dtype) by_dtype[tensor.dtype].push_back(&tensor);
    std::size_t shown = 0;
    for (const auto& [dtype, tensors] : by_dtype) {
        if (++shown > kMost) break;
        warn(fmt::format("warning: tensor {}{} left out, the dtype {} is not known", Quoted{tensors[0]->name},
                         tensors.size() > 1 ? fmt::format(" and {} more", tensors.size() - 1) : "", Quoted{dtype}));
    }
    if (by_dtype.size() > kMost) warn(fmt::format("warning: {} more unknown dtypes", by_dtype.size() - kMost));
}

void print_left_out(const Inspection& inspection) {
    say_left_out(inspection, LeftOut::Why::not_floating);
    say_left_out(inspection, LeftOut::Why::other_format);
    warn_of_unknown_dtypes(inspection);
}

void print_tables(const Inspection& inspection, int top, const std::string& files) {
    for (std::size_t format = 0; format < inspection.formats.size(); ++format)
        print_format(inspection, format, top, files);
    const Tally& total = inspection.total.tally;
    say(fmt::format("{}, {}, {}", count_of(std::int64_t(inspection.tensors.size()), "tensor"),
                    count_of(total.values, "value"), speed(inspection)));
    print_left_out(inspection);
    if (total.nans + total.infinities > 0) {
        std::string names;
        int found = 0;
        for (const InspectedTensor& tensor : inspection.tensors)
            if (tensor.tally.nans + tensor.tally.infinities > 0 && ++found <= 5)
                names += (names.empty() ? "" : ", ") + short_name(tensor.name);
        warn(fmt::format("warning: {} NaN and {} infinite values in {} itself, in {}{}", human_count(total.nans),
                         human_count(total.infinities), files, names, found > 5 ? ", ..." : ""));
    }
}

JsonLine json_of(const Inspection& inspection, const InspectedTensor& tensor, bool total) {
    const Tally& tally = tensor.tally;
    JsonLine line;
    line.add("tensor", tensor.name);
    if (!total) line.add("dtype", name_of(tensor.dtype)).add("shape", tensor.shape.str());
    line.add("values", tally.values)
        .add("zeros", tally.zeros)
        .add("nans", tally.nans)
        .add("infinities", tally.infinities);
    line.add("largest", tally.largest).add("smallest", tally.smallest);
    for (std::size_t i = 0; i < inspection.formats.size(); ++i) {
        const Fate fate = fate_of(tally, i, inspection.formats[i]);
        const FormatTally& counts = tally.formats.at(i);
        JsonLine part;
        part.add("overflow", counts.overflow).add("subnormal", counts.subnormal).add("vanish", counts.vanish);
        part.add("bits", fate.bits).add("mean_error", fate.mean_error).add("max_error", fate.max_error);
        if (!fate.empty)
            part.add("head_room", fate.head_room).add("scale_log2", fate.scale).add("lost_after", fate.lost_after);
        line.add(name_of(inspection.formats[i]), part);
    }
    return line;
}

void print_json(const Inspection& inspection) {
    for (const InspectedTensor& tensor : inspection.tensors) say(json_of(inspection, tensor, false).text());
    for (const LeftOut& tensor : inspection.left_out)
        say(JsonLine()
                .add("tensor", tensor.name)
                .add("dtype", tensor.dtype)
                .add("left_out", kWhy[int(tensor.why)])
                .text());
    JsonLine total = json_of(inspection, inspection.total, true);
    total.add("tensors", inspection.tensors.size()).add("left_out", inspection.left_out.size());
    say(total.add("bytes", inspection.bytes).add("seconds", inspection.seconds).text());
}

void print_history(const std::vector<TensorAtStep>& history, const std::vector<Dtype>& formats) {
    std::vector<std::string> header = {"step", "norm", "min", "max", "zero"}, dispensable;
    for (const Dtype format : formats)
        for (const char* what : {"subnormal", "vanish"}) header.push_back(fmt::format("{} {}", name_of(format), what));
    header.emplace_back("NaN, Inf");
    for (std::size_t i = header.size() - 1; i-- > 5;) dispensable.push_back(header[i]);
    Table table(header);
    for (const TensorAtStep& at : history) {
        const Tally& tally = at.tensor.tally;
        std::vector<std::string> row = {at.step ? fmt::format("{}", *at.step) : short_name(at.file.string()),
                                        fmt::format("{:.4g}", at.norm), fmt::format("{:.4g}", at.least),
                                        fmt::format("{:.4g}", at.greatest),
                                        share(double(tally.zeros) / double(std::max<std::int64_t>(1, tally.values)))};
        for (std::size_t i = 0; i < formats.size(); ++i) {
            const Fate fate = fate_of(tally, i, formats[i]);
            row.insert(row.end(), {share(fate.subnormal), share(fate.vanish)});
        }
        const std::int64_t bad = tally.nans + tally.infinities;
        row.push_back(bad == 0 ? "-" : human_count(bad));
        table.row(row);
    }
    const InspectedTensor& last = history.back().tensor;
    say(paint(Colour::bold, fmt::format("{}, {} {}", printable(last.name), name_of(last.dtype), last.shape.str())));
    print(table.fitted("  ", dispensable));
    say(fmt::format("{}, from {} to {}", count_of(std::int64_t(history.size()), "file"),
                    printable(history.front().file.string()), printable(history.back().file.string())));
}

void print_history_json(const std::vector<TensorAtStep>& history, const std::vector<Dtype>& formats) {
    Inspection inspection;
    inspection.formats = formats;
    for (const TensorAtStep& at : history) {
        JsonLine line = json_of(inspection, at.tensor, false);
        line.add("file", at.file.string());
        if (at.step) line.add("step", *at.step);
        say(line.add("norm", at.norm).add("min", at.least).add("max", at.greatest).text());
    }
}

// A run has many files; which of them is meant is not for us to say.
void refuse_run(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(std::filesystem::path(path) / "checkpoints", ignored)) return;
    const std::vector<std::filesystem::path> files = weight_files_of(path);
    fail<UsageError>(
        "{}: is a run; name a file of it, such as {}, or follow one tensor over its steps with --tensor NAME", path,
        files.back().string());
}

void inspect_command(const InspectArguments& a) {
    check<UsageError>(a.threads >= 0, "--threads {}: must be at least 0", a.threads);
    check<UsageError>(a.top >= 0, "--top {}: must be at least 0, which shows all", a.top);
    const std::vector<Dtype> formats = parse_formats(a.formats);
    if (!a.tensor.empty()) {
        const std::vector<TensorAtStep> history = follow_tensor({a.files.begin(), a.files.end()}, a.tensor, formats);
        a.json ? print_history_json(history, formats) : print_history(history, formats);
        return;
    }
    for (const std::string& file : a.files) refuse_run(file);
    const Inspection inspection = inspect({a.files.begin(), a.files.end()}, formats, a.threads);
    a.json ? print_json(inspection) : print_tables(inspection, a.top, files_text(a.files));
}

}  // namespace

void add_inspect(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("inspect", "Show what the tensors of a file would lose in smaller formats");
    auto arguments = std::make_shared<InspectArguments>();
    InspectArguments& a = *arguments;
    command
        ->add_option("files", a.files,
                     "Weights, gradients or activations of any framework: .safetensors, an index of shards, .npz, or "
                     "tensors by torch.save; several are taken together")
        ->required()
        ->option_text("FILE ...");
    command
        ->add_option("--tensor", a.tensor,
                     "One tensor over the steps of a run, or over several files: its norm, extremes and losses")
        ->option_text("NAME");
    command->add_option("--as", a.formats, "Formats to try: fp16, bf16, fp8, e4m3 or e5m2")->option_text("NAME,...");
    command->add_option("--top", a.top, "Tensors to show for each format, worst first; 0 for all")->option_text("N");
    command->add_option("--threads", a.threads, "Threads that read; 0 for one a core")->option_text("N");
    command->add_flag("--json", a.json, "One JSON object a line: every tensor, then the total");
    command->footer(
        example({"invar inspect model.safetensors", "invar inspect gradients.safetensors --as fp16 --top 5",
                 "invar inspect shard-*.safetensors --as bf16,e4m3 --json", "invar inspect weights.pt",
                 "invar inspect runs/NAME --tensor conv1.weight --as fp16"}) +
        "\n\nhead-room: doublings until the largest value overflows. scale: the power of two that would save most of "
        "what is lost." +
        read_more("INSPECT.md", "tells how to read the table"));
    command->callback([arguments] { inspect_command(*arguments); });
}

}  // namespace invar::cli
