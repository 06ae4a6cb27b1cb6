#include "invar/validate/csv_records.h"

#include <utility>

namespace invar {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n\f\v";
    const std::size_t first = text.find_first_not_of(kBlank);
    return first == text.npos ? std::string_view{} : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view without_mark(std::string_view text) {
    return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

CsvRecord next_record(std::string_view text, std::size_t& at, std::size_t& line) {
    CsvRecord record;
    std::string cell;
    bool quoted = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            line += c == '\n';
            if (c != '"')
                cell += c;
            else if (at + 1 < text.size() && text[at + 1] == '"')
                cell += text[++at];
            else
                quoted = false;
        } else if (c == '"' && trimmed(cell).empty()) {
            quoted = true;
            cell.clear();
        } else if (c == ',') {
            record.cells.push_back(std::move(cell));
            cell.clear();
        } else if (c == '\n') {
            ++at, ++line;
            record.ended = true;
            break;
        } else {
            cell += c;
        }
    }
    record.cells.push_back(std::move(cell));
    return record;
}

bool is_blank(const CsvRecord& record) {
    return record.cells.size() == 1 && trimmed(record.cells[0]).empty();
}

}  // namespace invar
