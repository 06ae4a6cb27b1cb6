#include "invar/config/tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "invar/config/part.h"
#include "invar/config/plugin.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/suggest.h"

namespace invar {

namespace {

// A relative path is taken from the file that names it, or from where the program was started.
std::string plugin_file(const std::string& name, const std::string& origin) {
    const std::filesystem::path beside = std::filesystem::path(origin).parent_path() / name;
    std::error_code error;
    return std::filesystem::exists(beside, error) ? beside.string() : name;
}

// Files of plug-ins that configurations name and that are gone.
std::set<std::string>& gone_plugins() {
    static std::set<std::string> files;
    return files;
}

const YamlNode* item_of(const YamlNode& node, std::string_view key) {
    for (std::size_t i = 0; i < node.keys.size(); ++i)
        if (node.keys[i] == key) return &node.items[i];
    return nullptr;
}

}  // namespace

void load_named_plugins(const YamlNode& root, const std::string& prefix, const std::string& origin) {
    const YamlNode* list = prefix == "plugins" ? &root : nullptr;
    if (prefix.empty()) list = item_of(root, "plugins");
    if (list == nullptr) return;
    const auto load = [&](const YamlNode& item) {
        if (item.kind != YamlNode::Kind::scalar) return;
        std::error_code error;
        if (prefix.empty() && !std::filesystem::exists(plugin_file(item.text, origin), error))
            gone_plugins().insert(item.text);
        else
            load_plugin(plugin_file(item.text, origin),
                        prefix.empty() ? fmt::format("{}:{}", origin, item.line) : origin);
    };
    load(*list);
    for (const YamlNode& item : list->items) load(item);
}

bool bring_up_to_date(YamlNode& root) {
    const YamlNode* loss = item_of(root, "loss");
    const YamlNode* name = loss == nullptr ? nullptr : item_of(*loss, "name");
    if (name == nullptr || item_of(root, "task") != nullptr || item_of(root, "stability") == nullptr) return false;
    for (std::size_t i = 0; i < root.keys.size(); ++i) {
        if (root.keys[i] != "loss") continue;
        root.keys[i] = "task";
        for (std::size_t k = 0; k < root.items[i].keys.size(); ++k) {
            if (root.items[i].keys[k] == "weight") root.items[i].keys[k] = "loss_weight";
            if (root.items[i].keys[k] == "name")
                root.items[i].items[k].text =
                    root.items[i].items[k].text == "exp" ? "exponential_loss" : "classification";
        }
    }
    return true;
}

void check_parts_exist(const YamlNode& root, const std::string& group, const std::string& origin) {
    const auto check_name = [&](const std::string& kind, const YamlNode& section) {
        const YamlNode* name = item_of(section, "name");
        const std::vector<std::string> names = part_names(kind);
        if (name == nullptr || name->kind != YamlNode::Kind::scalar || names.empty()) return;
        std::string wanted = name->text;
        std::ranges::transform(wanted, wanted.begin(), [](unsigned char c) { return std::tolower(c); });
        if (std::ranges::find(names, wanted) != names.end()) return;
        const std::string where = gone_plugins().empty() ? "one of a plug-in needs --plugin FILE"
                                                         : fmt::format(
                                                               "the plug-in {} is not there; give its new place "
                                                               "with --plugin FILE",
                                                               fmt::join(gone_plugins(), ", "));
        fail<UsageError>("{}:{}: {}.name = {}: there is no such {}{}; there are {}; {}", origin, name->line, kind,
                         printable(name->text.substr(0, 80)), kind, did_you_mean(wanted, names), fmt::join(names, ", "),
                         where);
    };
    check_name(group, root);
    for (std::size_t i = 0; i < root.keys.size(); ++i) check_name(root.keys[i], root.items[i]);
}

}  // namespace invar
