// Key: a member of an options struct as the configuration sees it, with its type, default, range and help.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <typeindex>
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
    std::type_index options = typeid(void);  // the struct that it is a member of
    // Of an options struct of the type that the key was made for. A null value sets the default.
    std::function<void(void* options, const Setting&)> set;
    std::function<std::string(const void* options)> print;
};

// What a key may be of.
template <class T>
inline constexpr bool kIsOptionType = std::is_same_v<T, int>;
template <class T>
requires requires(const Setting& setting, const Rule& rule, T& value) {
    read_value(setting, rule, value);
}
inline constexpr bool kIsOptionType<T> = true;

// key("hidden", &MlpOptions::hidden, within(1, 4096), "Widths of the hidden layers."). The default is what a fresh
// Options{} has.
template <class Options, class T>
Key key(std::string name, T Options::*member, const Rule& rule, std::string help,
        std::vector<std::string> aliases = {}) {
    Key result;
    result.name = std::move(name);
    static_assert(kIsOptionType<T>,
                  "a key is a bool, int, std::int64_t, double, std::string, a std::vector of std::int64_t or "
                  "std::string, or a std::array of two or three doubles");
    using Value = std::conditional_t<std::is_same_v<T, int>, std::int64_t, T>;
    result.type = type_name(Value{});
    result.allowed = rule.allowed;
    result.help = std::move(help);
    result.aliases = std::move(aliases);
    result.options = typeid(Options);
    result.is_map = std::is_same_v<T, PrecisionOverrides> || std::is_same_v<T, PrecisionSchedule>;
    result.set = [member, rule](void* options, const Setting& setting) {
        T& value = static_cast<Options*>(options)->*member;
        const bool to_default = setting.value.kind == YamlNode::Kind::null && setting.entry.empty();
        if (to_default)
            value = Options{}.*member;
        else if constexpr (std::is_same_v<T, Value>)
            read_value(setting, rule, value);
        else
            value = read_int(setting, rule);
    };
    result.print = [member](const void* options) {
        return print_value(Value(static_cast<const Options*>(options)->*member));
    };
    return result;
}

}  // namespace invar
