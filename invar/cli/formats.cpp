// `invar formats`: what each number format can hold.
#include <fmt/format.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/format_info.h"
#include "invar/io/jsonl.h"

namespace invar::cli {

namespace {

struct NamedFormat {
    std::string name;
    FormatInfo info;
};

std::vector<NamedFormat> all_formats() {
    std::vector<NamedFormat> formats;
    for (const Dtype dtype : kAllDtypes) {
        if (!is_floating(dtype)) continue;
        formats.push_back({std::string(name_of(dtype)), format_info(dtype)});
        if (dtype == Dtype::f32) formats.push_back({"tf32", tf32_info()});
    }
    return formats;
}

void print_table() {
    Table table({"format", "bits", "exponent", "mantissa", "max", "smallest normal", "smallest subnormal", "epsilon",
                 "digits", "vs FP32"});
    for (const auto& [name, f] : all_formats())
        table.row({name, fmt::format("{}", f.bits), fmt::format("{}", f.exponent_bits),
                   fmt::format("{}", f.mantissa_bits),
                   f.max < 1e6 ? fmt::format("{:g}", f.max) : fmt::format("{:.3e}", f.max),
                   fmt::format("{:.3e}", f.smallest_normal), fmt::format("{:.3e}", f.smallest_subnormal),
                   fmt::format("{:.3e}", f.epsilon), fmt::format("{:.1f}", f.decimal_digits),
                   fmt::format("{:g}x", f.memory_vs_f32)});
    print(table.fitted("", {"vs FP32", "exponent", "mantissa", "smallest subnormal", "digits", "bits"}));
    print(
        "\nvs FP32: memory. tf32 is a way to multiply, stored in 32 bits. f8e4m3 has no infinity: beyond its max comes "
        "NaN.\n");
}

void print_json() {
    for (const auto& [name, f] : all_formats()) {
        JsonLine line;
        line.add("format", name)
            .add("bits", f.bits)
            .add("exponent_bits", f.exponent_bits)
            .add("mantissa_bits", f.mantissa_bits);
        line.add("max", f.max)
            .add("smallest_normal", f.smallest_normal)
            .add("smallest_subnormal", f.smallest_subnormal);
        line.add("epsilon", f.epsilon).add("decimal_digits", f.decimal_digits).add("has_infinity", f.has_infinity);
        say(line.add("memory_vs_f32", f.memory_vs_f32).text());
    }
}

}  // namespace

void add_formats(CLI::App& app, int&) {
    CLI::App* command =
        app.add_subcommand("formats", "List the number formats: range, smallest values, digits, memory");
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print one JSON object a line");
    command->footer(example({"invar formats"}));
    command->callback([json] { *json ? print_json() : print_table(); });
}

}  // namespace invar::cli
