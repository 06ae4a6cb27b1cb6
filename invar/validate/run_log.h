// The log of a run, whoever wrote it: named series of numbers over steps, from a CSV table or from JSON lines.
// Whatever the text holds, the result is a log or an IoError that names file and line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

inline constexpr std::uint64_t kMaxLogBytes = std::uint64_t(1) << 30;  // that a file of a log may have

struct Series {
    std::vector<double> x, y;  // step (or epoch, or the number of the row, where there is none), and value
    bool empty() const { return y.empty(); }
};

struct RunLog {
    std::string source;                    // the file, as errors name it
    std::map<std::string, Series> series;  // nested JSON keys are joined by '.'
    std::map<std::string, std::string>
        spoilt;  // series with something else than a number: where, and what stands there
    std::map<std::string, std::vector<double>> passed_over;  // steps at which NaN was taken for "not logged"
    std::string note;                                        // what was left out, and why; "" where nothing was

    // The series of that name; throws IoError where one of its values is no number.
    const Series& at(const std::string& name) const;
    std::vector<std::string> names() const;
};

// A table with a header line; cells may be empty, as Lightning leaves them, or quoted. A last line without a line end
// is left out: nobody can tell whether its last number is whole.
RunLog parse_csv_log(std::string_view text, const std::string& source);
// An object a line; or one array of objects, or an object that holds such an array as "log_history".
// Python's NaN, Infinity and -Infinity are understood, and so are "nan", "inf" and "-inf". In a table, where every row
// has every column, NaN may stand for what was not logged (missing_values.h); that is left out as an empty cell is.
RunLog parse_json_log(std::string_view text, const std::string& source);
// Either, by its first character.
RunLog parse_log(std::string_view text, const std::string& source);

// A cell or a JSON text as a number: "0.5", "nan", "-Infinity"; false where it is none.
bool parse_number(std::string_view text, double& value);

}  // namespace invar
