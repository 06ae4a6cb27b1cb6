// From keys as people write them to settings of a Config.
#pragma once

#include <map>

#include "invar/config/table.h"

namespace invar {

// The parts that are known to be chosen, by section: {"data", "table"}. Keys of others are not meant.
using ChosenParts = std::map<std::string, std::string>;

// The field, and the entry of it when it is a map, that a key as written means: a full key, an alias, the key without
// its section when that is clear, or one of `group` when the key stands in a file of that group. Throws UsageError for
// an unknown key, with the nearest.
struct Target {
    const Field* field = nullptr;
    std::string entry;
};
Target find_key(const std::string& written, const std::string& group, const std::string& origin,
                const ChosenParts& chosen = {});

// Where each key that was set was last set.
using Origins = std::map<std::string, std::string>;

// Turns the tree of a file (or a value of the command line, below `prefix`) into settings, in order.
std::vector<Setting> flatten(YamlNode root, const std::string& prefix, const std::string& group,
                             const std::string& origin, const ChosenParts& chosen = {});

// Sets them, the later over the earlier; the choices of parts first. A key of a part that is not chosen is an error.
void apply(const std::vector<Setting>& settings, Config& config, Origins& origins);

// Checks what no single key can: throws UsageError.
void check_together(const Config& config, const Origins& origins);

}  // namespace invar
