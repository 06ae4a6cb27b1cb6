// Pieces of reports as text: sizes, times, percentages, and tables whose columns line up in the raw file too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

std::string human_bytes(double bytes);              // "28.7 MiB"
std::string human_count(std::int64_t n);            // "1,199,882"
std::string human_rate(double per_second);          // "987", "12.3k"
std::string report_duration(double seconds);        // "19m 39s", "4.21 s"
std::string report_change(double from, double to);  // "-15.0%", "+0.15%"; "n/a" where there is no share of `from`
std::string report_number(double value);            // four significant digits, or as many as an accuracy needs

class MarkdownTable {
  public:
    explicit MarkdownTable(std::vector<std::string> header) : header_(std::move(header)) {}
    // One cell a column; a bar in a cell is escaped.
    MarkdownTable& row(std::vector<std::string> cells);
    std::string str() const;

  private:
    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace invar
