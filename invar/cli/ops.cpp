// `invar ops`: every operation, what it computes and what autocast does with it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/io/jsonl.h"
#include "invar/ops/apply.h"

namespace invar::cli {

namespace {

constexpr CastClass kClasses[] = {CastClass::low,    CastClass::fp32, CastClass::wide_inside,
                                  CastClass::widest, CastClass::keep, CastClass::refuse};

std::string_view meaning(CastClass cast) {
    switch (cast) {
        case CastClass::low:
            return "runs in the low precision";
        case CastClass::fp32:
            return "runs in FP32";
        case CastClass::wide_inside:
            return "computes in FP32 on what it gets, gives the low precision";
        case CastClass::widest:
            return "runs in the widest of its inputs";
        case CastClass::keep:
            return "runs in what it gets";
        case CastClass::refuse:
            return "refused under autocast";
    }
    return "";
}

struct OpsArguments {
    std::string cast_class;
    bool json = false, markdown = false;
};

std::vector<std::string> row_of(const OpEntry& op) {
    return {op.name, op.doc, std::string(name_of(op.cast)), std::string(meaning(op.cast))};
}

// A row of a Markdown table; a bar inside a cell would end it.
std::string markdown_row(const std::vector<std::string>& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) {
        line += ' ';
        for (const char c : cell) line += c == '|' ? "\\|" : std::string(1, c);
        line += " |";
    }
    return line;
}

std::vector<std::string> names_of_classes() {
    std::vector<std::string> names;
    for (const CastClass cast : kClasses) names.emplace_back(name_of(cast));
    return names;
}

void list_ops(const OpsArguments& arguments) {
    const std::vector<std::string> names = names_of_classes();
    const bool known =
        arguments.cast_class.empty() || std::find(names.begin(), names.end(), arguments.cast_class) != names.end();
    check<UsageError>(known, "--class {}: unknown class{}; there are {}", arguments.cast_class,
                      did_you_mean(arguments.cast_class, names), fmt::join(names, ", "));
    check<UsageError>(!arguments.json || !arguments.markdown, "--json and --markdown exclude each other");
    const std::vector<std::string> header{"operation", "computes", "class", "under autocast"};
    Table table(header);
    if (arguments.markdown)
        say(fmt::format(
            "# Operations\n\nMade by `invar ops --markdown` from what each operation says of itself.\n\n{}\n{}",
            markdown_row(header), "|---|---|---|---|"));
    for (const OpEntry& op : registered_ops()) {
        if (!arguments.cast_class.empty() && name_of(op.cast) != arguments.cast_class) continue;
        if (arguments.json)
            say(JsonLine().add("op", op.name).add("computes", op.doc).add("class", name_of(op.cast)).text());
        else if (arguments.markdown)
            say(markdown_row(row_of(op)));
        else
            table.row(row_of(op));
    }
    if (!arguments.json && !arguments.markdown) print(table.fitted("", {"under autocast", "computes"}));
}

}  // namespace

void add_ops(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("ops", "List the operations and what autocast does with each");
    auto arguments = std::make_shared<OpsArguments>();
    command
        ->add_option("--class", arguments->cast_class,
                     fmt::format("Only those of this class: {}", fmt::join(names_of_classes(), ", ")))
        ->type_name("CLASS");
    command->add_flag("--json", arguments->json, "Print one JSON object a line");
    command->add_flag("--markdown", arguments->markdown, "Print a Markdown document");
    command->footer(example({"invar ops --class low"}));
    command->callback([arguments] { list_ops(*arguments); });
}

}  // namespace invar::cli
