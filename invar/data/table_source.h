// One file of a table, of any format: x as floats, the target as it is, and the names that they have in it.
#pragma once

#include "invar/data/table.h"

namespace invar {

struct TableSource {
    std::string file;
    Tensor x = {};  // f32 [rows, ...]
    // The target: cells of text as written, or an array of [rows] or [rows, outputs].
    std::vector<std::string> words = {};
    Tensor array = {};

    // What x and the target are called. Columns have names where there is a header.
    enum class Names : std::uint8_t { none, header, arrays };
    Names names = Names::none;
    bool is_text = false;
    std::vector<std::string> inputs = {};  // columns, or one array
    std::string target = {};

    std::int64_t rows() const { return x.size(0); }
};

// `like`: the file that is trained on, whose names this one, to validate on, must have, in any order.
TableSource open_table_source(const std::string& path, const TableOptions& options, const TableSource* like = nullptr);

// The target as classes, by name, or as numbers, f32 [rows, outputs]. One rule for all formats: numbers that are all
// whole (3, 3.0, a float of that value) are classes, called as an integer is written; other numbers are numbers; words
// are classes, called as they are written.
bool has_class_target(const TableSource& source);
std::vector<std::string> class_target(const TableSource& source);
Tensor number_target(const TableSource& source);
// Whether a class comes before another: numbers by their value, before words by the alphabet.
bool class_before(const std::string& a, const std::string& b);

}  // namespace invar
