#include "invar/core/device.h"

#include <charconv>

#include "invar/core/error.h"

namespace invar {

Device Device::parse(std::string_view text) {
    if (text == "cpu" || text == "auto") return cpu();  // no other device is compiled in
    if (text.starts_with("cuda")) {
        int index = 0;
        const std::string_view rest = text.substr(4);
        const bool numbered =
            rest.size() > 1 && rest[0] == ':' &&
            std::from_chars(rest.data() + 1, rest.data() + rest.size(), index).ptr == rest.data() + rest.size();
        check<UsageError>(rest.empty() || numbered, "unknown device '{}'; use cpu, cuda, cuda:N or auto", text);
        fail<UsageError>("device '{}' is not available: this build of Invar has no CUDA support; use --device cpu",
                         text);
    }
    fail<UsageError>("unknown device '{}'; use cpu, cuda or auto", text);
}

std::string Device::str() const {
    return is_cpu() ? "cpu" : fmt::format("cuda:{}", index);
}

}  // namespace invar
