// Options that other tools have and this program has not: what is set by a key here.
#pragma once

#include <string>

namespace invar::cli {

// What to write in the place of `--max-epochs 3`: "write trainer.max_epochs=3". The value may be empty; "" for an option
// that no key stands for.
std::string advice_on_option(const std::string& flag, const std::string& value);

}  // namespace invar::cli
