// The table of every key: its member, check and help. Reading, overriding, printing, completion and the documentation
// all go by it, so that a key is declared once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "invar/config/value.h"

namespace invar {

struct Field {
    std::string key;      // "trainer.max_epochs"
    std::string section;  // "trainer", or "" at the top
    std::string leaf;     // "max_epochs"
    std::string type;
    std::string allowed;
    std::string help;
    std::vector<std::string> aliases;
    bool is_map = false;
    std::function<void(Config&, const Setting&)> set;
    std::function<std::string(const Config&)> print;
};

const std::vector<Field>& config_fields();
const std::vector<std::string>& config_sections();

// The field, and the entry of it when it is a map, that a key as written means: a full key, an alias, the key without
// its section when that is clear, or one of `group` when the key stands in a file of that group. Throws UsageError for
// an unknown key, with the nearest.
struct Target {
    const Field* field = nullptr;
    std::string entry;
};
Target find_key(const std::string& written, const std::string& group, const std::string& origin);

// Where each key that was set was last set.
using Origins = std::map<std::string, std::string>;

// Fills in what follows from other keys (the sizes of the named data set, ...) where nobody set it, and checks what no
// single key can: throws UsageError.
void settle(Config& config, const Origins& origins);

// Turns the tree of a file (or a value of the command line, below `prefix`) into settings, in order.
std::vector<Setting> flatten(const YamlNode& root, const std::string& prefix, const std::string& group,
                             const std::string& origin);

// Sets them, the later over the earlier.
void apply(const std::vector<Setting>& settings, Config& config, Origins& origins);

}  // namespace invar
