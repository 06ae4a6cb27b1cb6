// Part: what a configuration chooses by name, with options of its own: a task, a model, a data set. Each is registered
// by the file that defines it; names, keys, help, completion and documentation come from what is registered.
#pragma once

#include <any>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "invar/config/key.h"
#include "invar/core/error.h"

namespace invar {

struct PartInfo {
    std::string kind;   // "model"
    std::string name;   // "mlp"
    std::string about;  // one line
    std::vector<Key> keys;
    std::any defaults;                              // an options struct
    void* (*address)(std::any& options) = nullptr;  // of the struct in it
    std::any make;                                  // what makes it; of a type that the kind decides

    const Key* find(const std::string& key) const;  // nullptr where it has none of that name
};

// For a namespace-scope object, so it never throws: what is wrong with a registration is told by check_registered().
void register_part(PartInfo info) noexcept;
void registration_failed(const std::string& kind, const std::string& name, const std::string& why) noexcept;
// Throws a UsageError for the first part that could not be registered: a name twice, a key twice, no name.
void check_registered();

// Throws a UsageError that names the nearest.
const PartInfo& find_part(const std::string& kind, const std::string& name);
// In alphabetical order.
std::vector<const PartInfo*> parts_of(const std::string& kind);
std::vector<std::string> part_names(const std::string& kind);
// How many there are in all; it only grows.
std::size_t parts_registered();

template <class Options>
void register_part(const char* kind, std::string name, std::string about, std::vector<Key> keys,
                   std::any make) noexcept {
    try {
        register_part({kind, name, std::move(about), std::move(keys), Options{},
                       [](std::any& options) { return static_cast<void*>(std::any_cast<Options>(&options)); },
                       std::move(make)});
    } catch (const std::exception& error) {
        registration_failed(kind, name, error.what());
    } catch (...) {
        registration_failed(kind, name, "its options threw something when they were made");
    }
}

class Part {
  public:
    Part(std::string kind, std::string name) : kind_(std::move(kind)), name_(std::move(name)) {}

    const std::string& kind() const { return kind_; }
    const std::string& name() const { return name_; }
    const PartInfo& info() const { return find_part(kind_, name_); }
    // Another one of the kind, with its default options.
    Part& choose(const std::string& name);
    // config.data.choose("synthetic", SyntheticOptions{.size = 512}).
    template <class Options>
    Part& choose(const std::string& name, Options options) {
        choose(name).as<Options>() = std::move(options);
        return *this;
    }

    // config.model.choose("mlp").as<MlpOptions>().hidden = {64}. A UsageError where they are not of that type.
    template <class Options>
    Options& as() {
        options();
        Options* typed = std::any_cast<Options>(&options_);
        if (typed == nullptr) wrong_type();
        return *typed;
    }
    template <class Options>
    const Options& as() const {
        const Options* typed = std::any_cast<Options>(options_.has_value() ? &options_ : &info().defaults);
        if (typed == nullptr) wrong_type();
        return *typed;
    }
    // One key, as the command line would set it: set("hidden", "[64, 64]").
    Part& set(const std::string& key, const std::string& value);

    void* options();  // the options struct
    const void* options() const;
    // The same name, and the same value of each key.
    bool operator==(const Part& other) const;

  private:
    [[noreturn]] void wrong_type() const;
    std::string kind_, name_;
    std::any options_;  // empty: the defaults; so that a Part can exist before what it names is registered
};

// What makes a part, run; an exception that is not of Invar's own kinds is told with the name of the part.
template <class Make>
auto made_by(const Part& part, Make&& make) {
    try {
        return make();
    } catch (const Error&) {
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        fail("{} '{}': {}", part.kind(), part.name(), error.what());
    }
}

}  // namespace invar
