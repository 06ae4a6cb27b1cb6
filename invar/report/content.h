// The content of a report, before it becomes Markdown, HTML or JSON: rows of figures, the checklist with each box
// decided by a measurement, the statistics, and what the figures cannot show.
#pragma once

#include <string>
#include <vector>

#include "invar/report/context.h"

namespace invar {

struct ResultRow {
    std::string name, baseline, candidate, change;
    int good = 0;  // 1 where the change is welcome, -1 where it is not, 0 where it is neither
};
std::vector<ResultRow> result_rows(const Comparison& comparison, const Arm& arm);

struct CheckItem {
    enum class State { done, open, unknown, todo } state = State::open;
    std::string what;
    std::string measured;  // what decided it; of what is left to people, when it is to be done
};
std::vector<CheckItem> checklist(const Comparison& comparison, const Arm& arm, const ReportContext& context);

// Names and values; empty where nothing was tested.
std::vector<std::pair<std::string, std::string>> statistics_rows(const Comparison& comparison, const Arm& arm);
// Seed (or run), baseline, candidate, change; empty for one run an arm.
std::vector<ResultRow> seed_rows(const Comparison& comparison, const Arm& arm);

// What stands before the lines that people sign, and a line to tick for each candidate.
std::string approval_note(const Comparison& comparison);
std::vector<std::string> approval_items(const Comparison& comparison);

// What its runs were saved from, a sentence each.
std::vector<std::string> recoveries_of(const Arm& arm);

// Paragraphs on what the figures cannot bear.
std::vector<std::string> limits_of(const Comparison& comparison);

std::string skipped_of(const Arm& arm);  // "3 of 300", steps of all its runs
std::string known(double value);         // report_number, or "n/a" for what is not known
// The metric that is compared, as its task prints it: "88.50%" or "0.3594"; "n/a" where it is not known.
std::string metric_text(const Comparison& comparison, double value);
// By how much the baseline's metric differs without any change of precision, in one line; "" where nothing is known.
std::string noise_text(const Comparison& comparison);

}  // namespace invar
