// Device: where a tensor lives and its operations run.
#pragma once

#include <string>
#include <string_view>

namespace invar {

struct Device {
    enum class Kind { cpu, cuda };
    Kind kind = Kind::cpu;
    int index = 0;

    static Device cpu() { return {}; }
    static Device cuda(int index = 0) { return {Kind::cuda, index}; }
    // "cpu", "cuda", "cuda:1"; "auto" is the CPU here. Says what is meant, not whether it is there: that is
    // resolve_device's, in kernels/devices.h. Throws UsageError.
    static Device parse(std::string_view text);

    bool is_cpu() const { return kind == Kind::cpu; }
    std::string str() const;
    bool operator==(const Device&) const = default;
};

}  // namespace invar
