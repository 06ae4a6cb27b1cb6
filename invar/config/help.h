// What is registered, in words: for help pages and for docs/CONFIG.md.
#pragma once

#include <string>

namespace invar {

// Every task, model, data set, optimizer and schedule with its keys and their defaults, for a help page.
std::string parts_help();

// Every key in tables of Markdown, a section after the other: the last chapter of docs/CONFIG.md.
std::string keys_markdown();

}  // namespace invar
