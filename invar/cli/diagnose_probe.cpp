#include "invar/cli/diagnose_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <sstream>

#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/shell.h"
#include "invar/formats/inspect.h"
#include "invar/io/file.h"
#include "invar/report/probe_page.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kNameColumns = 24;  // so that a table fits 80 columns
constexpr std::size_t kRowsOfGood = 40;   // more of them say nothing

// The end of a name tells more than its beginning.
std::string shortened(const std::string& name) {
    const std::string text = printable(name);
    if (text.size() <= kNameColumns) return text;
    std::size_t from = text.size() - (kNameColumns - 3);
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;  // whole characters
    return "..." + text.substr(from);
}

std::string short_of(Direction direction) {
    return direction == Direction::forward ? "fwd" : "bwd";
}

fs::path write_text(const std::string& asked, const fs::path& otherwise, const std::string& text) {
    const fs::path file = asked.empty() ? otherwise : fs::path(asked);
    if (file.has_parent_path()) make_folders(file.parent_path());
    write_file_atomically(file, text);
    return file;
}

bool is_good(const ProbeRow& row) {
    for (const FormatVerdict& verdict : row.verdicts)
        if (verdict.trouble != Trouble::none) return false;
    return true;
}

void print_rows(const ProbeDiagnosis& d) {
    Table table({"module", "way", "ran in", "largest", "fp16", "bf16", "e4m3", "e5m2"});
    const bool all = d.rows.size() <= kRowsOfGood;
    std::size_t left_out = 0;
    for (const ProbeRow& row : d.rows) {
        if (!all && is_good(row)) {
            ++left_out;
            continue;
        }
        std::vector<std::string> cells = {shortened(row.module), short_of(row.direction),
                                          std::string(name_of(row.ran_in)), fmt::format("{:.2e}", row.tally.largest)};
        for (std::size_t i = 0; i < kProbeFormats.size(); ++i) cells.push_back(verdict_word(row, i));
        table.row(std::move(cells));
    }
    if (left_out < d.rows.size()) print(table.fitted("  ", {"largest", "ran in"}));
    if (left_out > 0)
        say(fmt::format("  {} that no format harms; the page has all", count_of(std::int64_t(left_out), "row")));
    std::istringstream lines(verdict_words());
    for (std::string line; std::getline(lines, line);) say("  " + paint(Colour::dim, line));
}

void print_diagnosis(const ProbeDiagnosis& d) {
    say(d.title);
    say(fmt::format("{}, step{} {}; held against {}", d.ran_in, d.steps.size() == 1 ? "" : "s",
                    fmt::join(d.steps, ", "), name_of(d.format)));
    print_rows(d);
    say("");
    say(scale_sentence(d));
    if (const std::string sentence = skips_sentence(d); !sentence.empty()) say(sentence);
    if (d.finding) {
        say(paint(Colour::red, fmt::format("step {}: {}", d.finding->step, d.finding->text)));
        say(fmt::format("to blame: {}; {}", paint(Colour::bold, name_of(d.finding->blame)), d.finding->remedy));
    }
    for (const ProbeConcern& c : d.concerns) say(paint(Colour::yellow, c.text));
    if (!d.keep_fp32.empty()) {
        std::vector<std::string> names;
        for (const std::string& name : d.keep_fp32) names.push_back(printable(name));
        say(fmt::format("keep in FP32: {}", paint(Colour::green, fmt::format("{}", fmt::join(names, ", ")))));
        if (const std::string note = patch_note(d); !note.empty()) say("  " + paint(Colour::dim, note));
    }
    if (d.healthy()) say(paint(Colour::green, healthy_sentence(d)));
}

void keep_step(Probe& probe, std::int64_t step) {
    std::vector<std::int64_t> there;
    for (const ProbeLine& line : probe.lines) there.push_back(line.step);
    std::erase_if(probe.lines, [&](const ProbeLine& line) { return line.step != step; });
    check<UsageError>(!probe.lines.empty(), "--step {}: {} has none of that number; it has {}", step,
                      probe.folder.string(), fmt::join(there, ", "));
}

int diagnose_one(const ProbeArguments& a) {
    const fs::path folder = a.folders[0];
    std::optional<Dtype> as;
    if (!a.as.empty()) {
        const std::vector<Dtype> formats = parse_formats(a.as);
        check<UsageError>(formats.size() == 1, "--as {}: one format at a time; for FP8 say e4m3 or e5m2", a.as);
        as = formats[0];
    }
    Probe probe = open_probe(folder);
    if (a.step != 0) keep_step(probe, a.step);
    const ProbeDiagnosis d = diagnose_probe(probe, as, a.steps);
    for (const std::string& reason : d.passed_over) warn("note: passed over a step: " + reason);
    const std::string patch = d.keep_fp32.empty() ? "" : fp32_patch(d.keep_fp32, folder.string());
    const fs::path page = write_text(a.html, folder / "diagnosis.html", html_probe(d, patch));
    const fs::path code = patch.empty() ? fs::path() : write_text(a.patch, folder / "keep_fp32.py", patch);
    if (a.json) {
        say(json_probe(d));
    } else {
        print_diagnosis(d);
        if (!code.empty())
            say(fmt::format("patch: {}   (import it, apply(model) once before training)", code.string()));
        say(fmt::format("page: {}", page.string()));
    }
    return d.finding ? 1 : 0;
}

int diagnose_two(const ProbeArguments& a) {
    check<UsageError>(a.as.empty() && a.patch.empty() && a.step == 0,
                      "--as, --patch and --step are for one probe; two are held against each other from the first step "
                      "that both have");
    const ProbeComparison c = compare_probes(open_probe(a.folders[0]), open_probe(a.folders[1]));
    const fs::path page = write_text(a.html, fs::path(a.folders[1]) / "comparison.html", html_comparison(c));
    if (a.json) {
        say(json_comparison(c));
        return c.parting ? 1 : 0;
    }
    say("a: " + c.title_a);
    say("b: " + c.title_b);
    for (const std::string& name : c.only_in_one) say("only in " + printable(name));
    for (const std::string& sentence : c.other_calls) say(sentence);
    Table table({"module", "way", "a", "b", "difference", "allowed", ""});
    for (const ProbeDifference& row : c.rows)
        table.row({shortened(row.module), short_of(row.direction), std::string(name_of(row.in_a)),
                   std::string(name_of(row.in_b)), fmt::format("{:.1e}", row.difference),
                   fmt::format("{:.1e}", row.allowed), row.parts ? "parts" : ""});
    say(fmt::format("step {}:", c.steps.back()));
    print(table.fitted("  ", {"a", "b"}));
    say("");
    say(paint(c.parting ? Colour::red : Colour::green, parting_sentence(c)));
    say(fmt::format("page: {}", page.string()));
    return c.parting ? 1 : 0;
}

}  // namespace

int diagnose_probes(const ProbeArguments& a) {
    check<UsageError>(a.folders.size() <= 2, "diagnose takes one probe, or two to compare; here are {}",
                      a.folders.size());
    for (const std::string& folder : a.folders)
        check<UsageError>(is_probe(folder), "{} is no probe: it has no index.jsonl, which invar_probe.py writes",
                          printable(folder));
    return a.folders.size() == 2 ? diagnose_two(a) : diagnose_one(a);
}

}  // namespace invar::cli
