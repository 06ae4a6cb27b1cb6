// What the program writes to its terminal, and what it does when nobody listens: losing standard output or standard
// error never stops a command. Whether something was lost is asked at the end.
#pragma once

#include <string>
#include <string_view>

namespace invar::cli {

// Call this before anything is opened: a file that took the place of a closed standard descriptor would be written
// over by messages.
void occupy_standard_descriptors();

// To standard output, at once, so that whoever reads a pipe sees it when it happens. Control characters in it are
// escaped but for newlines, tabs and the colours of paint().
void print(std::string_view text);
void say(std::string_view line);
// One line on standard error that does not stop anything.
void warn(std::string_view line);
// As print(), with control sequences of our own before and after it.
void print_between(std::string_view before, std::string_view text, std::string_view after);

// Why the first write to standard output that failed did (errno); 0 where none has.
int output_error();
// "No space left on device"
std::string output_error_text();

// What stands before the number of a colour and the letter m in a text for print(). It holds digits drawn by this
// process, so that no file can hold it.
const std::string& colour_mark();

}  // namespace invar::cli
