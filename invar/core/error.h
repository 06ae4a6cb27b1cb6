// Every failure in Invar is an exception derived from Error: one line that says what, where and what to do.
// The library never prints, exits or aborts; the program turns these into exit codes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace invar {

// The run failed: exit code 1.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The command line, the configuration or the call itself is wrong: exit code 2.
class UsageError : public Error {
  public:
    using Error::Error;
};

// A file cannot be read, or does not hold what it should: exit code 1.
class IoError : public Error {
  public:
    using Error::Error;
};

template <class E = Error, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw E(fmt::format(format, std::forward<Args>(args)...));
}

template <class E = Error, class... Args>
void check(bool good, fmt::format_string<Args...> format, Args&&... args) {
    if (!good) [[unlikely]]
        throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace invar
