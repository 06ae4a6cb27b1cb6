// Key: a member of an options struct as the configuration sees it, with its type, default, range and help.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "invar/config/value.h"

namespace invar {

struct Key {
    std::string name;     // "hidden"
    std::string type;     // "list of integers"
    std::string allowed;  // "from 1 to 1048576"
    std::string help;
    std::vector<std::string> aliases;  // other full keys that mean this one: "optimizer.learning_rate"
    bool is_map = false;
    // Of an options struct of the type that the key was made for. A null value sets the default.
    std::function<void(void* options, const Setting&)> set;
    std::function<std::string(const void* options)> print;
};

// key("hidden", &MlpOptions::hidden, within(1, 4096), "Widths of the hidden layers."). The default is what a fresh
// Options{} has.
template <class Options, class T>
Key key(std::string name, T Options::*member, const Rule& rule, std::string help,
        std::vector<std::string> aliases = {}) {
    Key result;
    result.name = std::move(name);
    result.type = type_name(T{});
    result.allowed = rule.allowed;
    result.help = std::move(help);
    result.aliases = std::move(aliases);
    result.is_map = std::is_same_v<T, PrecisionOverrides> || std::is_same_v<T, PrecisionSchedule>;
    result.set = [member, rule](void* options, const Setting& setting) {
        T& value = static_cast<Options*>(options)->*member;
        const bool to_default = setting.value.kind == YamlNode::Kind::null && setting.entry.empty();
        if (to_default)
            value = Options{}.*member;
        else
            read_value(setting, rule, value);
    };
    result.print = [member](const void* options) { return print_value(static_cast<const Options*>(options)->*member); };
    return result;
}

}  // namespace invar
