// From keys as people write them to settings of a Config.
#pragma once

#include <map>

#include "invar/config/table.h"

namespace invar {

// A key that means no field. What it might mean can be said when it is known what was chosen, after the last file.
struct UnknownKey {
    std::string written, origin;
};

// Where each key that was set was last set.
using Origins = std::map<std::string, std::string>;

// Turns the tree of a file (or a value of the command line, below `prefix`) into settings, in order. A key as written
// means a field by its full name, by an alias, without its section where that is clear, or within `group` where it
// stands in a file of that group; those that mean none are added to `unknown`.
std::vector<Setting> flatten(YamlNode root, const std::string& prefix, const std::string& group,
                             const std::string& origin, std::vector<UnknownKey>& unknown);

// The full key that one as written means, "trainer.max_epochs" for "epochs"; "" where it means none, or several.
std::string key_meant_by(const std::string& written);

// Throws a UsageError for the first of them, with the nearest key of what these settings choose.
void refuse_unknown(const std::vector<UnknownKey>& unknown, const std::vector<Setting>& settings);

// Sets them, the later over the earlier; the choices of parts first. A key of a part that is not chosen is an error.
void apply(const std::vector<Setting>& settings, Config& config, Origins& origins);

// Checks what no single key can: throws UsageError.
void check_together(const Config& config, const Origins& origins);

}  // namespace invar
