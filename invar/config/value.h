// One configuration value: how each C++ type is read from YAML, checked, and printed so that it reads back the same.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "invar/config/types.h"
#include "invar/config/yaml.h"

namespace invar {

// A value on its way to a member: what, for which key, and where it was written.
struct Setting {
    std::string key;          // the full key of the field
    std::string entry;        // of a map: which entry of it
    YamlNode value;           // null (back to the default), a scalar or a list
    std::string origin;       // "configs/trainer/fp16_safe.yaml:3" or "command line"
    bool takes_back = false;  // ~key: an error where there is nothing to take back
    bool if_it_fits = false;  // left out where it belongs to a part that is not chosen

    // "trainer.max_epochs = 0 (command line)", for errors.
    std::string str() const;
};

// What a field allows, in words and in code.
struct Rule {
    std::string allowed;                                       // ends "must be ..."; "" when the type says it all
    std::function<bool(double)> number;                        // for each number
    std::function<std::string(const std::string&)> canonical;  // for each text; throws UsageError for a bad one
    bool zero_is_all = false;                                  // of a BatchCount: 0 means every batch
};

Rule any();
Rule at_least(double least);
Rule above(double bound);
Rule within(double least, double most);              // both allowed
Rule below(double least, double bound);              // least allowed, bound not
Rule one_of(const std::vector<std::string>& names);  // in any case
Rule path();                                         // not empty
Rule custom(std::string allowed, std::function<bool(double)> number);
Rule canonical_text(std::string allowed, std::function<std::string(const std::string&)> canonical);

void read_value(const Setting& setting, const Rule& rule, bool& out);
void read_value(const Setting& setting, const Rule& rule, std::int64_t& out);
int read_int(const Setting& setting, const Rule& rule);
void read_value(const Setting& setting, const Rule& rule, double& out);
void read_value(const Setting& setting, const Rule& rule, std::string& out);
void read_value(const Setting& setting, const Rule& rule, std::vector<std::int64_t>& out);
void read_value(const Setting& setting, const Rule& rule, std::vector<std::string>& out);
void read_value(const Setting& setting, const Rule& rule, std::array<double, 2>& out);
void read_value(const Setting& setting, const Rule& rule, std::array<double, 3>& out);
void read_value(const Setting& setting, const Rule& rule, BatchCount& out);
void read_value(const Setting& setting, const Rule& rule, PrecisionOverrides& out);  // one entry
void read_value(const Setting& setting, const Rule& rule, PrecisionSchedule& out);   // one entry

std::string print_value(bool value);
std::string print_value(std::int64_t value);
std::string print_value(double value);
std::string print_value(const std::string& value);
std::string print_value(const std::vector<std::int64_t>& value);
std::string print_value(const std::vector<std::string>& value);
std::string print_value(const std::array<double, 2>& value);
std::string print_value(const std::array<double, 3>& value);
std::string print_value(const BatchCount& value);
std::string print_value(const PrecisionOverrides& value);
std::string print_value(const PrecisionSchedule& value);

inline std::string type_name(bool) {
    return "true or false";
}
inline std::string type_name(std::int64_t) {
    return "integer";
}
inline std::string type_name(double) {
    return "number";
}
inline std::string type_name(const std::string&) {
    return "text";
}
inline std::string type_name(const std::vector<std::int64_t>&) {
    return "list of integers";
}
inline std::string type_name(const std::vector<std::string>&) {
    return "list of texts";
}
inline std::string type_name(const std::array<double, 2>&) {
    return "two numbers";
}
inline std::string type_name(const std::array<double, 3>&) {
    return "three numbers";
}
inline std::string type_name(const BatchCount&) {
    return "batches or share";
}
inline std::string type_name(const PrecisionOverrides&) {
    return "map";
}
inline std::string type_name(const PrecisionSchedule&) {
    return "map";
}

}  // namespace invar
