// What the tree of a file needs before its keys are looked up.
#pragma once

#include <string>

#include "invar/config/yaml.h"

namespace invar {

// Loads the plug-ins that it names, or that a value of the command line below `prefix` does. A file that is gone is
// told of when a part is missing.
void load_named_plugins(const YamlNode& root, const std::string& prefix, const std::string& origin);

// The configurations of runs from before parts had keys of their own list every key, whatever was chosen, and the loss
// where the task is now. Turns such a tree into today's; false for any other.
bool bring_up_to_date(YamlNode& root);

// Throws a UsageError for a part that nobody has registered: before its keys, which nobody knows either.
void check_parts_exist(const YamlNode& root, const std::string& group, const std::string& origin);

}  // namespace invar
