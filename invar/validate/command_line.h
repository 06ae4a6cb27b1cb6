// Commands that people paste: by the name of this program, with quotes where a shell needs them, and with the plug-ins
// without which the models and data they name would not be known.
#pragma once

#include <string>
#include <vector>

namespace invar {

// "--plugin FILE" for each; a file below the folder that the program was started in is named from there.
std::vector<std::string> plugin_words(const std::vector<std::string>& plugins);

// "invar --plugin FILE validate CONFIG key=value ..."; `config` may be "". `plugins` are those of a composed
// configuration; one that is among the words already, as plugins=[FILE], is not named twice.
std::string command_line(const std::string& verb, const std::string& config, const std::vector<std::string>& words,
                         const std::vector<std::string>& plugins);

}  // namespace invar
