// Tables as text: numbers in rows and columns, and one column that may hold words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

struct CsvOptions {
    std::string target = {};  // a column by its name, or by its number from 0; negative numbers count from the end
    char separator = 0;       // 0: that of , ; tab | which the first line has most of
    // none: there is one where a cell of the first line is no number and all others of its column are, or where the
    // target is one of its cells
    std::optional<bool> header = {};
    // Where the target is given by its number: its name in another file, which goes before the number here.
    std::string target_name = {};
};

struct CsvTable {
    bool header = false;
    std::vector<std::string> columns;  // their names, without the target's; "0", "1", ... where there is no header
    std::string target_name;
    Tensor numbers;                   // f32 [rows, columns]
    std::vector<std::string> target;  // one cell for each row, as written
    std::vector<std::int64_t> lines;  // where each row begins
};

// As RFC 4180 has it, with the separators that people use: cells may be quoted, and hold separators, newlines and
// doubled quotes then. Throws IoError with line and column for cells that are missing, no number or not finite, and for
// rows of another length; a target that is not there, or there twice, is a UsageError.
CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options);

// Whether a cell stands for a value that is not known: empty, NA, nan, null, ?
bool is_missing(std::string_view cell);
// The whole of a cell as a number; none where it is something else. One that is too large for double is infinite.
std::optional<double> number_in(std::string_view cell);
std::optional<std::int64_t> whole_number_in(std::string_view cell);

}  // namespace invar
