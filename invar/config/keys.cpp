// From a key as somebody wrote it to the field it means.
#include "invar/config/keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "invar/config/others_keys.h"
#include "invar/config/tree.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/core/suggest.h"

namespace invar {
namespace {

// By full key and by alias; nullptr when there is none. Several parts may have the key: one of them.
const Field* lookup(const std::string& key) {
    const std::vector<Field>& fields = config_fields();
    auto found = std::ranges::find(fields, key, &Field::key);
    if (found == fields.end())
        found = std::ranges::find_if(fields, [&](const Field& field) {
            return std::ranges::find(field.details.aliases, key) != field.details.aliases.end();
        });
    return found == fields.end() ? nullptr : &*found;
}

// The one that this configuration has; nullptr for a key that may be left out.
const Field* field_in(const Config& config, const Setting& setting) {
    std::vector<std::string> parts;
    std::string section;
    for (const Field& field : config_fields()) {
        if (field.key != setting.key) continue;
        if (field.applies(config)) return &field;
        section = field.section;
        parts.push_back(field.part);
    }
    if (setting.if_it_fits) return nullptr;
    if (const std::string_view advice = advice_on(setting.key); !advice.empty())
        fail<UsageError>("{}: the {} {} has no such key; {}", setting.str(), section, part_in(config, section)->name(),
                         advice);
    fail<UsageError>("{}: belongs to {} {}, and the {} is {}; use {}.name={}, or leave it out", setting.str(),
                     fmt::join(parts, ", "), section, section, part_in(config, section)->name(), section,
                     parts.front());
}

struct Target {
    const Field* field = nullptr;
    std::string entry;
};

// A full key, an alias, or an entry of a map.
Target find_exact(const std::string& key) {
    if (const Field* field = lookup(key)) return {field, ""};
    for (const Field& field : config_fields())
        if (field.details.is_map && key.size() > field.key.size() + 1 && is_below(key, field.key))
            return {&field, key.substr(field.key.size() + 1)};
    return {};
}

// A key without its section, when it is the only one of that name.
Target find_bare(const std::string& key, const std::string& origin) {
    std::vector<const Field*> found;
    for (const Field& field : config_fields()) {
        if (field.details.is_map && key.size() > field.leaf().size() + 1 && is_below(key, field.leaf()))
            return {&field, key.substr(field.leaf().size() + 1)};
        if (field.leaf() != key) continue;
        if (found.empty() || found.back()->key != field.key) found.push_back(&field);
    }
    if (found.empty()) return {};
    check<UsageError>(found.size() == 1, "{}: key '{}' could be {} or {}; write the one you mean", origin, key,
                      found.front()->key, found.back()->key);
    return {found.front(), ""};
}

// The parts that are chosen, by section: {"data", "table"}. Keys of others are not meant.
using ChosenParts = std::map<std::string, std::string>;

// Whether a field may be meant where these parts are chosen, each by its section.
bool may_be_meant(const Field& field, const ChosenParts& chosen) {
    const auto part = chosen.find(field.section);
    return field.part.empty() || part == chosen.end() || part->second == field.part;
}

[[noreturn]] void unknown_key(const std::string& written, const std::string& origin, const ChosenParts& chosen) {
    const std::string key = find_non_text(written) == std::string::npos ? written.substr(0, 120) : "?";
    if (const std::string_view advice = advice_on(key); !advice.empty())
        fail<UsageError>("{}: unknown key '{}'; {}", origin, key, advice);
    const std::vector<std::string>& sections = config_sections();
    if (std::find(sections.begin(), sections.end(), key) != sections.end())
        fail<UsageError>(
            "{}: '{}' is a section, not a value; write {}: with its keys below, or pick a group file ({}=NAME "
            "on the command line, '- {}: NAME' under defaults:)",
            origin, key, key, key, key);
    std::vector<std::string> keys, leaves;
    std::vector<const Field*> meant_by;
    for (const Field& field : config_fields()) {
        if (!may_be_meant(field, chosen)) continue;
        keys.push_back(field.key);
        keys.insert(keys.end(), field.details.aliases.begin(), field.details.aliases.end());
        leaves.push_back(field.leaf());
        meant_by.push_back(&field);
    }
    if (key.find('.') == std::string::npos) keys.insert(keys.end(), sections.begin(), sections.end());  // model=NAME
    // The whole key may be misspelt, or its section be another tool's and its last part be right.
    std::string meant = nearest(key, keys);
    if (meant.empty()) {
        const std::string leaf = nearest(key.substr(key.rfind('.') + 1), leaves);
        const auto found = std::find(leaves.begin(), leaves.end(), leaf);
        if (found != leaves.end()) meant = meant_by[static_cast<std::size_t>(found - leaves.begin())]->key;
    }
    if (meant.empty())
        fail<UsageError>("{}: unknown key '{}'; {} train --print-config shows every key", origin, key, program_name());
    fail<UsageError>("{}: unknown key '{}' (did you mean '{}'?)", origin, key, meant);
}

// The field, and the entry of it when it is a map.
Target find_key(const std::string& written, const std::string& group, const std::string& origin) {
    if (!group.empty())
        if (Target target = find_exact(group + "." + written); target.field) return target;
    if (Target target = find_exact(written); target.field) return target;
    return find_bare(written, origin);
}

class Flattener {
  public:
    Flattener(const std::string& group, const std::string& origin, bool with_lines, std::vector<UnknownKey>& unknown)
        : group_(group), origin_(origin), with_lines_(with_lines), unknown_(unknown) {}

    void walk(const YamlNode& node, const std::string& key) {
        if (node.kind == YamlNode::Kind::map) {
            for (std::size_t i = 0; i < node.items.size(); ++i)
                walk(node.items[i], key.empty() ? node.keys[i] : key + "." + node.keys[i]);
            return;
        }
        const std::string origin = with_lines_ ? fmt::format("{}:{}", origin_, node.line) : origin_;
        const std::vector<std::string>& sections = config_sections();
        const bool is_section = std::find(sections.begin(), sections.end(), key) != sections.end();
        if (node.kind == YamlNode::Kind::null && (key.empty() || is_section)) return;  // a section with nothing in it
        check<UsageError>(!key.empty(), "{}: a configuration is a map of keys, such as 'trainer:'", origin);
        const Target target = find_key(key, group_, origin);
        if (target.field == nullptr) return unknown_.push_back({key, origin});
        const std::string id = target.field->key + "." + target.entry;
        const auto [where, fresh] = seen_.emplace(id, origin);
        check<UsageError>(fresh, "{}: '{}' is set again, after {}; keep one", origin, key.substr(0, 120),
                          where->second);
        settings_.push_back({target.field->key, target.entry, node, origin});
    }

    std::vector<Setting> take() { return std::move(settings_); }

  private:
    const std::string& group_;
    const std::string& origin_;
    bool with_lines_;
    std::vector<UnknownKey>& unknown_;
    std::map<std::string, std::string> seen_;
    std::vector<Setting> settings_;
};

}  // namespace

std::vector<Setting> flatten(YamlNode root, const std::string& prefix, const std::string& group,
                             const std::string& origin, std::vector<UnknownKey>& unknown) {
    load_named_plugins(root, prefix, origin);
    const bool is_older = prefix.empty() && bring_up_to_date(root);
    if (prefix.empty()) check_parts_exist(root, group, origin);
    Flattener flattener(group, origin, prefix.empty(), unknown);
    flattener.walk(root, prefix);
    std::vector<Setting> settings = flattener.take();
    for (Setting& setting : settings) setting.if_it_fits = is_older;
    return settings;
}

std::string key_meant_by(const std::string& written) {
    try {
        const Target target = find_key(written, "", "");
        return target.field == nullptr ? "" : target.field->key;
    } catch (const UsageError&) {  // it may mean several
        return "";
    }
}

void refuse_unknown(const std::vector<UnknownKey>& unknown, const std::vector<Setting>& settings) {
    if (unknown.empty()) return;
    Config config;
    ChosenParts chosen;
    for (const Setting& setting : settings) {
        const Field& field = *lookup(setting.key);
        if (!field.chooses) continue;
        field.set(config, setting);
        chosen[field.section] = part_in(config, field.section)->name();
    }
    unknown_key(unknown.front().written, unknown.front().origin, chosen);
}

void apply(const std::vector<Setting>& settings, Config& config, Origins& origins) {
    const auto chooses = [](const Setting& setting) { return lookup(setting.key)->chooses; };
    for (const Setting& setting : settings)
        if (chooses(setting)) lookup(setting.key)->set(config, setting);
    for (const Setting& setting : settings) {
        const bool null = setting.value.kind == YamlNode::Kind::null, whole = setting.entry.empty();
        check<UsageError>(!setting.takes_back || !whole || origins.contains(setting.key),
                          "{}: '~{}' takes back nothing: no file and no word before it sets {}; leave it out",
                          setting.origin, setting.key, setting.key);
        if (const Field* field = chooses(setting) ? nullptr : field_in(config, setting)) field->set(config, setting);
        if (setting.key == "plugins") config.plugins = loaded_plugins();  // they were loaded when they were read
        if (!null)
            origins[setting.key] = setting.origin;
        else if (whole)
            origins.erase(setting.key);
    }
}

}  // namespace invar
