// `invar ops`: every operation with what autocast does with it.
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

namespace invar {

namespace {

constexpr CastClass kClasses[] = {CastClass::low, CastClass::fp32, CastClass::widest, CastClass::keep,
                                  CastClass::refuse};

std::string_view meaning(CastClass cast) {
    switch (cast) {
        case CastClass::low:
            return "runs in the low precision";
        case CastClass::fp32:
            return "runs in FP32";
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
    bool json = false;
};

void list_ops(const OpsArguments& arguments) {
    std::vector<std::string> names;
    for (const CastClass cast : kClasses) names.emplace_back(name_of(cast));
    const bool known =
        arguments.cast_class.empty() || std::find(names.begin(), names.end(), arguments.cast_class) != names.end();
    check<UsageError>(known, "--class {}: unknown class{}; there are {}", arguments.cast_class,
                      did_you_mean(arguments.cast_class, names), fmt::join(names, ", "));
    Table table({"operation", "class", "under autocast"});
    for (const OpEntry& op : registered_ops()) {
        if (!arguments.cast_class.empty() && name_of(op.cast) != arguments.cast_class) continue;
        if (arguments.json)
            say(JsonLine().add("op", op.name).add("class", name_of(op.cast)).text());
        else
            table.row({op.name, std::string(name_of(op.cast)), std::string(meaning(op.cast))});
    }
    if (!arguments.json) print(table.text());
}

}  // namespace

void add_ops(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("ops", "List the operations and what autocast does with each");
    auto arguments = std::make_shared<OpsArguments>();
    command->add_option("--class", arguments->cast_class, "Only those of this class: low, fp32, widest, keep or refuse")
        ->type_name("CLASS");
    command->add_flag("--json", arguments->json, "Print one JSON object a line");
    command->footer(example({"invar ops --class low"}));
    command->callback([arguments] { list_ops(*arguments); });
}

}  // namespace invar
