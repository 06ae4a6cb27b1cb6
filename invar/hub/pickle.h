// What a pickle says, without doing it: values of plain kinds, and calls that are noted and never made. No code runs;
// a class or function that whoever reads does not know is refused by its name.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

struct PickleValue {
    enum class Kind : std::uint8_t {
        none,
        boolean,
        integer,
        number,
        text,
        list,
        tuple,
        dict,
        global,
        call,
        persistent
    };
    using Index = std::uint32_t;

    Kind kind = Kind::none;
    std::int64_t integer = 0;  // also of a boolean; of an integer beyond 64 bits 0
    std::string_view text;     // also of bytes; of a global "module.name"
    std::vector<Index> items;  // of a list or tuple; of a dict key, value, key, ...; of a call the callable and its
                               // arguments, a tuple; of a persistent id that id
};

class Pickle {
  public:
    using Knows = std::function<bool(std::string_view global)>;
    // Protocols 2 to 5. The bytes must outlive this. Throws IoError, which names `source`.
    Pickle(std::string_view bytes, const std::string& source, const Knows& knows);

    const PickleValue& root() const { return values_[root_]; }
    // Values may be shared, and may hold themselves.
    const PickleValue& at(PickleValue::Index index) const { return values_[index]; }

  private:
    friend class PickleMachine;
    std::deque<PickleValue> values_;
    std::deque<std::string> names_;  // of globals
    PickleValue::Index root_ = 0;
};

}  // namespace invar
