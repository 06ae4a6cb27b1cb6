#include "invar/config/part.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/suggest.h"

namespace invar {

namespace {

// Parts are registered before main and while plug-ins are loaded; runs may look them up from several threads.
struct Registry {
    std::mutex mutex;
    std::map<std::pair<std::string, std::string>, PartInfo> parts;  // nodes stay where they are
    std::string fault;                                              // the first
};

Registry& registry() {
    static Registry registry;
    return registry;
}

// A key must be one that can be written in a file and read back.
std::string fault_of(const Key& key, const std::any& owner, void* defaults) {
    const bool plain = !key.name.empty() && key.name[0] >= 'a' && key.name[0] <= 'z' && key.name != "null" &&
                       key.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!plain) return fmt::format("its key '{}' must be made of a-z, 0-9 and '_'", printable(key.name));
    if (key.options != std::type_index(owner.type()))
        return fmt::format("its key '{}' is a member of another struct than its options", key.name);
    try {
        key.set(defaults, {key.name, "", parse_yaml(key.print(defaults), key.name), "default"});
    } catch (const UsageError& error) {
        return fmt::format("its key '{}' does not allow its own default: {}", key.name, error.what());
    }
    return "";
}

std::string fault_of(const PartInfo& info, const Registry& known) {
    const bool plain = !info.name.empty() &&
                       info.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") == std::string::npos;
    if (!plain) return "its name must be made of a-z, 0-9, '_', '-' and '.'";
    if (known.parts.contains({info.kind, info.name})) return "there is one of that name already";
    std::set<std::string> names = {"name"};
    std::any defaults = info.defaults;
    for (const Key& key : info.keys) {
        if (!names.insert(key.name).second) return fmt::format("it has two keys '{}', or one that is taken", key.name);
        if (const std::string fault = fault_of(key, defaults, info.address(defaults)); !fault.empty()) return fault;
    }
    return "";
}

}  // namespace

const Key* PartInfo::find(const std::string& key) const {
    const auto found = std::ranges::find(keys, key, &Key::name);
    return found == keys.end() ? nullptr : &*found;
}

void register_part(PartInfo info) noexcept {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    const std::string fault = fault_of(info, known);
    if (fault.empty())
        known.parts.emplace(std::pair(info.kind, info.name), std::move(info));
    else if (known.fault.empty())
        known.fault = fmt::format("the {} '{}' cannot be registered: {}", info.kind, printable(info.name), fault);
}

void registration_failed(const std::string& kind, const std::string& name, const std::string& why) noexcept {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (known.fault.empty()) known.fault = fmt::format("the {} '{}' cannot be registered: {}", kind, name, why);
}

void check_registered() {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    check<UsageError>(known.fault.empty(), "{}", known.fault);
}

std::vector<const PartInfo*> parts_of(const std::string& kind) {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    std::vector<const PartInfo*> parts;
    for (const auto& [key, info] : known.parts)
        if (key.first == kind) parts.push_back(&info);
    return parts;
}

std::vector<std::string> part_names(const std::string& kind) {
    std::vector<std::string> names;
    for (const PartInfo* part : parts_of(kind)) names.push_back(part->name);
    return names;
}

std::size_t parts_registered() {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    return known.parts.size();
}

const PartInfo& find_part(const std::string& kind, const std::string& name) {
    {
        Registry& known = registry();
        const std::lock_guard lock(known.mutex);
        const auto found = known.parts.find({kind, name});
        if (found != known.parts.end()) return found->second;
    }
    const std::vector<std::string> names = part_names(kind);
    fail<UsageError>("there is no {} '{}'{}; there are {}", kind, name.substr(0, 80), did_you_mean(name, names),
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

Part& Part::choose(const std::string& name) {
    find_part(kind_, name);
    name_ = name;
    options_.reset();
    return *this;
}

void* Part::options() {
    const PartInfo& part = info();
    if (!options_.has_value()) options_ = part.defaults;
    return part.address(options_);
}

const void* Part::options() const {
    const PartInfo& part = info();
    return part.address(const_cast<std::any&>(options_.has_value() ? options_ : part.defaults));
}

void Part::wrong_type() const {
    fail<UsageError>("the {} '{}' has options of another type than those asked for", kind_, name_);
}

Part& Part::set(const std::string& key, const std::string& value) {
    const Key* found = info().find(key);
    check<UsageError>(found != nullptr, "the {} '{}' has no key '{}'", kind_, name_, key);
    found->set(options(), {fmt::format("{}.{}", kind_, key), "", parse_yaml(value, key), "set"});
    return *this;
}

bool Part::operator==(const Part& other) const {
    if (kind_ != other.kind_ || name_ != other.name_) return false;
    return std::ranges::all_of(info().keys,
                               [&](const Key& key) { return key.print(options()) == key.print(other.options()); });
}

}  // namespace invar
