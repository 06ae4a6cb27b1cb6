// `invar doctor`: what this machine can be trusted with, in seconds.
#include "invar/diagnose/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "invar/cli/aside.h"
#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/io/jsonl.h"
#include "invar/kernels/devices.h"
#include "invar/report/text.h"

namespace invar::cli {

namespace {

struct DoctorArguments {
    std::string device = "all";
    std::int64_t seed = 0;
    int threads = 0;
    bool json = false;
};

// A line of any length in lines of 80 columns, all but the first indented.
void say_wrapped(const std::string& text, Colour colour = Colour::plain) {
    constexpr std::size_t kColumns = 80, kIndent = 4;
    std::istringstream words(text);
    std::string line(std::min(text.find_first_not_of(' '), text.size()), ' ');
    bool begun = false;
    for (std::string word; words >> word;) {
        if (begun && line.size() + 1 + word.size() > kColumns) {
            say(paint(colour, line));
            line.assign(kIndent - 1, ' ');
        }
        line += (begun ? " " : "") + word;
        begun = true;
    }
    if (begun) say(paint(colour, line));
}

std::string number(double value) {
    return std::isfinite(value) ? fmt::format("{:.6g}", value) : fmt::format("{}", value);
}

// "0.43%", "12%": small shares are no zeros.
std::string percent(double share) {
    return fmt::format("{:.{}f}%", 100 * share, share > 0 && share < 0.01 ? 2 : 0);
}

std::string share_cell(const ComparedValues& values) {
    if (!values.ok()) return "WRONG";
    return values.values > 0 ? percent(values.worst ? values.worst->share() : 0) : "-";
}

std::string word_cell(const ComparedValues& values, const char* right, const char* wrong) {
    if (!values.ok()) return wrong;
    return values.values > 0 ? right : "-";
}

std::string table_of(const std::vector<DeviceHealth>& all) {
    double fastest = 0;
    for (const DeviceHealth& health : all)
        for (const FormatHealth& f : health.formats) fastest = std::max(fastest, f.flops_per_s);
    const double unit = fastest >= 1e13 ? 1e12 : 1e9;
    Table table({"device", "format", "casts", "products", "conv", "NaN/Inf", "repeat",
                 unit > 1e9 ? "TFLOP/s" : "GFLOP/s", "peak", "result"});
    for (const DeviceHealth& health : all)
        for (const FormatHealth& f : health.formats) {
            const bool timed = f.flops_per_s > 0 && health.disturbed.empty();
            table.row({health.device.str(), f.format, word_cell(f.conversions, "exact", "WRONG"),
                       share_cell(f.products), share_cell(f.convolutions), word_cell(f.non_finite, "seen", "LOST"),
                       word_cell(f.repeats, "same", "DIFFER"),
                       f.flops_per_s > 0 ? fmt::format("{:.1f}", f.flops_per_s / unit) : "-",
                       timed && f.should_give > 0 ? percent(f.flops_per_s / f.should_give) : "-",
                       f.ok() ? "ok" : "WRONG"});
        }
    return table.text();
}

void say_device(const DeviceHealth& health) {
    const std::string threads = health.threads > 0 ? fmt::format(", {}", count_of(health.threads, "thread")) : "";
    say_wrapped(fmt::format("{}: {}{}; {}", health.device.str(), health.name, threads, health.description));
    const MemoryHealth& memory = health.memory;
    std::string text = memory.total > 0 ? fmt::format("{}, {} of it free", human_bytes(double(memory.total)),
                                                      human_bytes(double(memory.free)))
                                        : "how much there is is not known";
    if (memory.tried > 0)
        text += fmt::format("; {} written and read back twice: {}", human_bytes(double(memory.tried)),
                            memory.wrong == 0 ? "the same bits" : "OTHER BITS");
    say_wrapped("    memory: " + text);
    if (health.copy_per_s == 0) return;
    const std::string should =
        health.copy_should_give > 0
            ? fmt::format(", {} of what such a card gives", percent(health.copy_per_s / health.copy_should_give))
            : "; what it should give is not known";
    say_wrapped(fmt::format("    copy: {:.1f} GB/s read and written{}", health.copy_per_s / 1e9, should));
}

// What is wrong: operation, shape, the worst element and by how much.
std::string fault_text(const ComparedValues& values) {
    if (!values.problem.empty()) return "cannot be done: " + values.problem;
    const WorstElement& worst = *values.worst;
    std::string text = fmt::format("{} of {}: {}, {}, at {}: got {}, should be {}", human_count(values.wrong),
                                   count_of(values.values, "value"), worst.operation, worst.shapes, worst.place,
                                   number(worst.got), number(worst.expected));
    if (std::isfinite(worst.share()) && worst.bound > 0)
        text += fmt::format(", {} times the {} that may lie between them", number(worst.share()), number(worst.bound));
    return text;
}

std::string speed_text(const DeviceHealth& health, const FormatHealth& f) {
    if (f.flops_per_s == 0 || !health.disturbed.empty()) return "";
    const FormatHealth& f32 = health.formats.front();
    if (f.format == "f32") {
        if (f.should_give == 0) return "; what its products should reach is not known here";
        const std::string from =
            health.clock > 0 ? fmt::format("{} at {:.3g} GHz that do {:.0f} operations a cycle",
                                           count_of(health.cores, "core"), health.clock / 1e9, f.flops_per_cycle)
                             : "such a card";
        const double share = f.flops_per_s / f.should_give;
        return fmt::format("; its products reach {} of what {} should give{}", percent(share), from,
                           share > 1     ? ": the clock runs above what the system says"
                           : share < 0.3 ? ", which is little: is something else running, or the clock held down?"
                                         : "");
    }
    if (f32.flops_per_s == 0) return "";
    // Less than a tenth is within what two measurements of the same differ by.
    const double ratio = f.flops_per_s / f32.flops_per_s;
    const char* const how =
        f.native ? "the hardware multiplies it" : "it is widened to FP32 here, since nothing multiplies it";
    if (ratio > 1.1) return fmt::format(", and {:.1f} times as fast as f32: {}", ratio, how);
    return fmt::format(", but no faster than f32 ({:.2f} times): {}", ratio, how);
}

void say_format(const DeviceHealth& health, const FormatHealth& f) {
    const std::string who = fmt::format("{} {}: ", health.device.str(), f.format);
    if (f.ok()) {
        if (f.multiplies)
            say_wrapped(who + "right, and the same bits every time" + speed_text(health, f));
        else
            say_wrapped(who + "converted right; nothing multiplies in it here");
        if (f.keeps_subnormals && !*f.keeps_subnormals)
            say_wrapped(who +
                        fmt::format("operands below {:.2g} count as zero in products",
                                    format_info(parse_dtype(f.format == "tf32" ? "f32" : f.format)).smallest_normal));
        return;
    }
    if (!f.deadly.empty()) say_wrapped(fmt::format("{}WRONG products or convolutions: {}", who, f.deadly), Colour::red);
    for (const FormatHealth::Check& check : f.checks())
        if (!check.values.ok())
            say_wrapped(fmt::format("{}WRONG {}: {}", who, check.name, fault_text(check.values)), Colour::red);
    std::string avoid = "avoid it on this device";
    if (f.deadly.empty() && f.conversions.ok() && f.products.ok() && f.convolutions.ok() && f.non_finite.ok())
        avoid = "its values are right, but runs in it do not repeat to the bit";
    say_wrapped(who + avoid);
}

void say_all(const std::vector<DeviceHealth>& all, const std::string& without_gpu) {
    for (const DeviceHealth& health : all) say_device(health);
    if (!without_gpu.empty()) say_wrapped("cuda: not there: " + without_gpu);
    say("");
    print(table_of(all));
    say_wrapped(
        "products, conv: the largest error against f64, of what the format and sums in FP32 allow; peak: of what the "
        "hardware should give");
    for (const DeviceHealth& health : all) {
        say("");
        for (const FormatHealth& format : health.formats) say_format(health, format);
        const MemoryHealth& memory = health.memory;
        if (!memory.problem.empty())
            say_wrapped(fmt::format("{}: WRONG memory: {}", health.device.str(), memory.problem), Colour::red);
        if (memory.wrong > 0)
            say_wrapped(fmt::format("{}: WRONG memory: {} of 8 bytes came back otherwise, the first at byte {}; trust "
                                    "nothing that is computed here",
                                    health.device.str(), count_of(memory.wrong, "word"), memory.first_wrong),
                        Colour::red);
        if (!health.disturbed.empty())
            say_wrapped(fmt::format("{}: times were disturbed and are not compared: {}", health.device.str(),
                                    health.disturbed));
    }
}

JsonLine json_of(const ComparedValues& values) {
    JsonLine line;
    line.add("values", values.values).add("wrong", values.wrong);
    if (!values.problem.empty()) line.add("problem", values.problem);
    if (!values.worst) return line;
    const WorstElement& worst = *values.worst;
    JsonLine element;
    element.add("operation", worst.operation).add("shapes", worst.shapes).add("place", worst.place);
    element.add("got", worst.got).add("expected", worst.expected).add("bound", worst.bound).add("share", worst.share());
    return line.add("worst", element);
}

void say_json(const DeviceHealth& health) {
    for (const FormatHealth& f : health.formats) {
        JsonLine line, checks;
        for (const FormatHealth::Check& check : f.checks()) checks.add(check.name, json_of(check.values));
        line.add("device", health.device.str()).add("format", f.format).add("ok", f.ok()).add("checks", checks);
        if (!f.deadly.empty()) line.add("deadly", f.deadly);
        if (f.multiplies) line.add("native", f.native);
        if (f.keeps_subnormals) line.add("keeps_subnormals", *f.keeps_subnormals);
        if (f.flops_per_s > 0) line.add("flops_per_s", f.flops_per_s);
        if (f.should_give > 0) line.add("should_give", f.should_give);
        say(line.text());
    }
    const MemoryHealth& memory = health.memory;
    JsonLine line, block;
    block.add("total", memory.total).add("free", memory.free).add("tried", memory.tried).add("wrong", memory.wrong);
    if (memory.first_wrong >= 0) block.add("first_wrong", memory.first_wrong);
    if (!memory.problem.empty()) block.add("problem", memory.problem);
    line.add("device", health.device.str()).add("name", health.name).add("description", health.description);
    line.add("ok", health.ok()).add("memory", block).add("copy_per_s", health.copy_per_s);
    if (health.copy_should_give > 0) line.add("copy_should_give", health.copy_should_give);
    if (health.threads > 0) line.add("threads", health.threads).add("cores", health.cores);
    if (health.clock > 0) line.add("clock", health.clock);
    if (!health.disturbed.empty()) line.add("disturbed", health.disturbed);
    say(line.text());
}

std::vector<Device> devices_of(const std::string& word, std::string& without_gpu) {
    check<UsageError>(word == "all" || word == "cpu" || word.starts_with("cuda"),
                      "--device {}: use cpu, cuda, cuda:N or all", word);
    if (word != "all") return {resolve_device(word)};
    without_gpu = why_no_cuda();
    std::vector<Device> all{Device::cpu()};
    if (without_gpu.empty()) all.push_back(Device::cuda());
    return all;
}

int doctor(const DoctorArguments& a) {
    check<UsageError>(a.threads >= 0, "--threads {}: must be at least 1, or 0 for one per core", a.threads);
    set_threads(a.threads);
    std::string without_gpu;
    DoctorOptions options;
    options.seed = std::uint64_t(a.seed);
    options.try_aside = try_aside;
    LiveLine live;
    options.progress = [&](std::string_view what) {
        if (!a.json) live.show({fmt::format("examining: {}", what)});
    };
    std::vector<DeviceHealth> all;
    for (const Device device : devices_of(a.device, without_gpu)) {
        all.push_back(examine(device, options));
        if (a.json) say_json(all.back());
    }
    live.clear();
    if (!a.json) say_all(all, without_gpu);
    return std::ranges::all_of(all, [](const DeviceHealth& health) { return health.ok(); }) ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("doctor", "See in seconds what this machine can be trusted with");
    auto arguments = std::make_shared<DoctorArguments>();
    DoctorArguments& a = *arguments;
    command->add_option("--device", a.device, "What to look at: cpu, cuda, cuda:N or all")->option_text("DEVICE");
    command->add_option("--threads", a.threads, "Threads of the CPU; 0 is one per core")->option_text("N");
    command->add_option("--seed", a.seed, "Of the numbers that are tried")
        ->option_text("N")
        ->check(CLI::NonNegativeNumber);
    command->add_flag("--json", a.json, "Print one JSON object for each format, then one for each device");
    command->footer(example({"invar doctor", "invar doctor --device cpu --json"}) +
                    "\n\nExits with 1 where something is wrong: what, where and by how much is said." +
                    read_more("DOCTOR.md", "tells what is tried and how bounds are derived"));
    command->callback([arguments, &exit_code] { exit_code = doctor(*arguments); });
}

}  // namespace invar::cli
