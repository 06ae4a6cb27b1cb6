// Plug-ins: shared libraries that register parts. See invar/plugin.h for how to write one.
#pragma once

#include <string>
#include <vector>

namespace invar {

// Loads one, once. `origin` is where it was asked for: "command line", "my.yaml:3". What is not a plug-in, is one for
// another version, or throws is a UsageError of one line, and nothing of it was run before the version was looked at.
// A file that is gone counts as loaded where one of the same name is.
void load_plugin(const std::string& file, const std::string& origin);

// Their files, in the order in which they were loaded.
std::vector<std::string> loaded_plugins();

}  // namespace invar
