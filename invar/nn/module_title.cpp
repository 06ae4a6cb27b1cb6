#include "invar/nn/module_title.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace invar {

namespace {

// As PyTorch writes them; other classes have its names already.
constexpr std::pair<std::string_view, std::string_view> kInPyTorch[] = {
    {"Relu", "ReLU"}, {"LeakyRelu", "LeakyReLU"}, {"Gelu", "GELU"},
    {"Elu", "ELU"},   {"Silu", "SiLU"},           {"RmsNorm", "RMSNorm"},
};

}  // namespace

std::string class_name(const Module& module) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
    std::string name = status == 0 ? demangled.get() : typeid(module).name();
    name.erase(std::min(name.find('<'), name.size()));  // arguments of a template may hold colons too
    const std::size_t colon = name.rfind(':');
    if (colon != name.npos) name.erase(0, colon + 1);
    for (const auto& [ours, theirs] : kInPyTorch)
        if (name == ours) return std::string(theirs);
    return name;
}

std::string module_title(const std::string& path, const Module& module) {
    return fmt::format("{} ({})", path.empty() ? "the model itself" : path, class_name(module));
}

}  // namespace invar
