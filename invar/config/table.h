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
Part* part_in(Config& config, const std::string& section);
const Part* part_in(const Config& config, const std::string& section);

}  // namespace invar
