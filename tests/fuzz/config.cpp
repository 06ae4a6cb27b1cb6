// libFuzzer target: any bytes as a configuration end in a Config that prints and reads back the same, or a UsageError.
#include "invar/config/config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const invar::Config config = invar::parse_config(text, "fuzz");
        if (!(invar::parse_config(invar::to_yaml(config), "again") == config)) std::abort();
    } catch (const invar::UsageError&) {
    }
    // The same bytes as lines of key=value on a command line.
    std::vector<std::string> overrides;
    for (std::size_t begin = 0; begin < text.size() && overrides.size() < 16;) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        overrides.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    try {
        const invar::Config config = invar::load_config("", overrides, {});
        if (!(invar::parse_config(invar::to_yaml(config), "again") == config)) std::abort();
    } catch (const invar::UsageError&) {
    }
    return 0;
}
