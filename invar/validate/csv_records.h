// The records of a CSV text, one after the other, whoever wrote it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

struct CsvRecord {
    std::vector<std::string> cells;
    bool ended = false;  // by a line end, rather than by the end of the text
};
// From `at` on; quoted cells may hold commas, quotes ("") and line ends, which `line` counts.
CsvRecord next_record(std::string_view text, std::size_t& at, std::size_t& line);
bool is_blank(const CsvRecord& record);

std::string_view trimmed(std::string_view text);
// Behind the mark that some programs of Windows put at the beginning of a text.
std::string_view without_mark(std::string_view text);

}  // namespace invar
