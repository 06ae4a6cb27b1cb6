// The HTML report: one file that needs nothing else and opens offline, light or dark as the reader has it, without
// scripts. Plots of loss, metric, loss scale and gradient norm with all arms overlaid, then everything the Markdown
// says.
#pragma once

#include <filesystem>
#include <string>

#include "invar/report/context.h"

namespace invar {

std::string html_report(const Comparison& comparison, const ReportContext& context);

// report.md, report.json and report.html in `folder`, each written whole or not at all.
struct ReportFiles {
    std::filesystem::path markdown, json, html;
};
ReportFiles write_reports(const std::filesystem::path& folder, const Comparison& comparison,
                          const ReportContext& context);

}  // namespace invar
