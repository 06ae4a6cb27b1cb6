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
    std::optional<bool> header = {};  // none: there is one where the first line has a cell that is no number
};

struct CsvTable {
    std::vector<std::string> columns;  // their names, without the target's; "0", "1", ... where there is no header
    Tensor numbers;                    // f32 [rows, columns]
    std::vector<std::string> target;   // one cell for each row, as written
    std::vector<std::int64_t> lines;   // where each row begins
};

// As RFC 4180 has it, with the separators that people use: cells may be quoted, and hold separators, newlines and
// doubled quotes then. Throws IoError with line and column for cells that are missing, no number or not finite, and for
// rows of another length; a target that is not there is a UsageError.
CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options);

// Whether a cell stands for a value that is not known: empty, NA, nan, null, ?
bool is_missing(std::string_view cell);
// The whole of a cell as a number; none where it is something else.
std::optional<double> number_in(std::string_view cell);
std::optional<std::int64_t> whole_number_in(std::string_view cell);

}  // namespace invar
