// The table of every key: those of fixed sections, and those of every registered part. Reading, overriding, printing,
// completion and the documentation all go by it, so that a key is declared once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "invar/config/config.h"

namespace invar {

struct Field {
    std::string key;       // "trainer.max_epochs"
    std::string section;   // "trainer", or "" at the top
    std::string part;      // "mlp": only where that is chosen; "" always
    Key details;           // its name in the section, and the rest
    bool chooses = false;  // section.name of a part: is read before the keys of the part
    std::function<void(Config&, const Setting&)> set;
    std::function<std::string(const Config&)> print;

    const std::string& leaf() const { return details.name; }
    // Whether the configuration has it, whose parts are chosen.
    bool applies(const Config& config) const;
};

// Those of the parts that are registered now; a plug-in adds to them.
const std::vector<Field>& config_fields();
const std::vector<std::string>& config_sections();
// The part that a section chooses; nullptr for the others.
const Part* part_in(const Config& config, const std::string& section);

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

// Checks what no single key can: throws UsageError.
void check_together(const Config& config, const Origins& origins);

// Turns the tree of a file (or a value of the command line, below `prefix`) into settings, in order.
std::vector<Setting> flatten(YamlNode root, const std::string& prefix, const std::string& group,
                             const std::string& origin);

// Sets them, the later over the earlier; the choices of parts first. A key of a part that is not chosen is an error.
void apply(const std::vector<Setting>& settings, Config& config, Origins& origins);

}  // namespace invar
