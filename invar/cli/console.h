// How what the commands print looks: numbers people can read, tables that line up, and one line that is redrawn in
// place. Colour and redrawing are for terminals alone; a pipe gets plain lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "invar/cli/output.h"
#include "invar/report/text.h"
#include "invar/train/speed.h"

namespace invar::cli {

// Whether standard output is a terminal that can redraw a line.
bool on_terminal();
// The columns of that terminal; 80 where it does not say.
int terminal_width();

enum class Colour { plain, bold, dim, red, green, yellow, cyan };
// `text` in a colour: only on a terminal, and not where NO_COLOR is set.
std::string paint(Colour colour, std::string_view text);

std::string human_seconds(double seconds);                     // "4.2 ms", "0.42 s", "1 min 05 s", "2 h 03 min"
std::string clock_time(double seconds);                        // "0:07", "1:02:33"
std::string count_of(std::int64_t n, std::string_view thing);  // "1 step", "1,200 steps"
std::string loss_text(double loss);                            // six decimals, or what is left of a small one
std::string rate_text(const Rate& rate);                       // "12.3k tokens/s, MFU 41%"

// Columns padded to their widest cell. The first one and columns of words are flush left; columns of numbers are flush
// right, also where some are missing and a word stands in for a few. A newline in a cell is escaped.
class Table {
  public:
    explicit Table(std::vector<std::string> header = {}) : header_(std::move(header)) {}
    void row(std::vector<std::string> cells);
    std::string text(std::string_view indent = "") const;
    // Without the columns that a narrow terminal has no room for; `dispensable` are headers, the least telling first.
    // A pipe gets all. Before a column goes, names in the first are cut to `least_of_first`; `left_out` is told what
    // went.
    std::string fitted(std::string_view indent, const std::vector<std::string>& dispensable,
                       std::size_t least_of_first = std::string::npos,
                       std::vector<std::string>* left_out = nullptr) const;

  private:
    std::vector<std::size_t> widths() const;
    std::vector<bool> flush_right(std::size_t columns) const;

    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> rows_;
};

// What to say below such a table; "" where nothing was left out.
std::string no_room_for(const std::vector<std::string>& left_out);

// The line that is redrawn in place, at most ten times a second. Does nothing when not on a terminal.
class LiveLine {
  public:
    LiveLine() = default;
    ~LiveLine() { clear(); }
    LiveLine(const LiveLine&) = delete;
    LiveLine& operator=(const LiveLine&) = delete;

    // Whether enough time has gone by since the last one to make a new text.
    bool due() const;
    // Parts in order of importance after the first; those that do not fit the width are left out.
    void show(const std::vector<std::string>& parts);
    // Takes the line away, leaving nothing of it.
    void clear();
    // A lasting line above it.
    void above(std::string_view line);

  private:
    double drawn_at_ = -1.0;
    bool shown_ = false;
};

// A bar of so many columns, `share` of it filled.
std::string bar(double share, int columns);

}  // namespace invar::cli
