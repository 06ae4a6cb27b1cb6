#include "invar/core/device.h"

#include <charconv>

#include "invar/core/error.h"

namespace invar {

Device Device::parse(std::string_view text) {
    if (text == "cpu" || text == "auto") return cpu();
    if (text == "cuda") return cuda();
    int index = -1;
    constexpr std::string_view kNumbered = "cuda:";
    const char* const end = text.data() + text.size();
    if (text.starts_with(kNumbered)) {
        const auto [rest, error] = std::from_chars(text.data() + kNumbered.size(), end, index);
        if (rest != end || error != std::errc{}) index = -1;
    }
    check<UsageError>(index >= 0, "unknown device '{}'; use cpu, cuda, cuda:N or auto", text);
    return cuda(index);
}

std::string Device::str() const {
    return is_cpu() ? "cpu" : fmt::format("cuda:{}", index);
}

}  // namespace invar
