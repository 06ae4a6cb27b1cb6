#include "invar/cli/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/diagnose/preflight.h"
#include "invar/dist/communicator.h"
#include "invar/io/jsonl.h"
#include "invar/report/text.h"

namespace invar::cli {

namespace {

std::string place_of(const Preflight& found, int rank) {
    return fmt::format("rank {} on host {}", rank, found.ranks[std::size_t(rank)].host);
}

JsonLine json_of(const RankFacts& f, int rank) {
    JsonLine line;
    line.add("rank", rank).add("host", f.host).add("device", f.device).add("invar", f.version);
    line.add("library", f.library).add("train_samples", f.train_samples).add("test_samples", f.test_samples);
    line.add("memory_needed_bytes", f.memory_needed).add("memory_there_bytes", f.memory_there);
    line.add("disk_needed_bytes", f.disk_needed).add("disk_there_bytes", f.disk_there);
    return line.add("clock_offset_s", f.clock_offset);
}

void say_as_json(const Preflight& found) {
    for (std::size_t r = 0; r < found.ranks.size(); ++r) say(json_of(found.ranks[r], int(r)).text());
    for (const ExchangeSpeed& speed : found.speeds)
        say(JsonLine()
                .add("exchange_bytes", speed.bytes)
                .add("reduce_scatter_bytes_per_s", speed.reduce_scatter)
                .add("all_gather_bytes_per_s", speed.all_gather)
                .text());
    for (const Problem& p : found.problems)
        say(JsonLine()
                .add("problem", p.what)
                .add("mark", name_of(p.mark))
                .add("rank", p.rank)
                .add("host", found.ranks[std::size_t(p.rank)].host)
                .add("text", p.text)
                .text());
    say(JsonLine().add("ready", found.mark() != Mark::fail).add("ranks", found.ranks.size()).text());
}

std::string bytes_or_dash(std::int64_t bytes) {
    return bytes > 0 ? human_bytes(double(bytes)) : "-";
}

// Coarse where it is good enough, so that ranks that agree can share a row.
std::string clock_text(double offset, double error) {
    const double seconds = std::abs(offset);
    if (seconds <= std::max(0.01, error)) return fmt::format("< {}", human_seconds(std::max(0.01, error)));
    return fmt::format("{}{:.2f} s", offset < 0 ? "-" : "+", seconds);
}

std::vector<std::string> cells_of(const RankFacts& f, double clock_error) {
    const auto samples = [](std::int64_t n) { return n > 0 ? human_count(n) : "-"; };
    return {f.host,
            f.device.empty() ? "-" : f.device,
            f.version,
            f.library,
            samples(f.train_samples),
            samples(f.test_samples),
            bytes_or_dash(f.memory_needed),
            bytes_or_dash(f.memory_there),
            bytes_or_dash(f.disk_needed),
            bytes_or_dash(f.disk_there),
            clock_text(f.clock_offset, clock_error)};
}

// Free memory and disk move from one moment to the next: by themselves they make no row of their own.
bool same_row(const RankFacts& a, const RankFacts& b, double clock_error) {
    RankFacts other = b;
    if (a.memory_of == b.memory_of) other.memory_there = a.memory_there;
    if (a.host == b.host) other.disk_there = a.disk_there;
    return cells_of(a, clock_error) == cells_of(other, clock_error);
}

std::string table_of(const Preflight& found) {
    Table table({"rank", "host", "device", "invar", "joined by", "train", "test", "memory needed", "of", "checkpoint",
                 "room for", "clock"});
    const std::vector<RankFacts>& all = found.ranks;
    for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
        for (end = first + 1; end < all.size() && same_row(all[first], all[end], found.clock_error);) ++end;
        std::vector<std::string> cells = cells_of(all[first], found.clock_error);
        cells.insert(cells.begin(), end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1));
        table.row(cells);
    }
    return table.fitted("  ", {"invar", "test", "checkpoint", "joined by", "clock"});
}

std::string speed_table_of(const Preflight& found) {
    Table table({"exchange of", "summed", "handed round"});
    for (const ExchangeSpeed& speed : found.speeds)
        table.row({human_bytes(double(speed.bytes)), human_bytes(speed.reduce_scatter) + "/s",
                   human_bytes(speed.all_gather) + "/s"});
    return table.text("  ");
}

// "rank 1 on host n7", or "ranks 0-3, 8 on 2 hosts".
std::string places_of(const Preflight& found, const std::vector<int>& ranks) {
    if (ranks.size() == 1) return place_of(found, ranks.front());
    std::set<std::string> hosts;
    for (const int r : ranks) hosts.insert(found.ranks[std::size_t(r)].host);
    std::string text;
    for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
        for (end = first + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[first]);
        if (end - first > 1) text += fmt::format("-{}", ranks[end - 1]);
    }
    return fmt::format("ranks {} on {}", text,
                       hosts.size() == 1 ? "host " + *hosts.begin() : count_of(std::int64_t(hosts.size()), "host"));
}

// A line for each, whichever ranks have it.
void say_problems(const Preflight& found) {
    std::vector<std::pair<Problem, std::vector<int>>> told;
    for (const Problem& p : found.problems) {
        const auto same = std::ranges::find_if(told, [&](const auto& each) {
            return each.first.mark == p.mark && each.first.what == p.what && each.first.text == p.text;
        });
        if (same == told.end())
            told.push_back({p, {p.rank}});
        else
            same->second.push_back(p.rank);
    }
    for (const auto& [p, ranks] : told)
        say(fmt::format("{}  {}: {}: {}", paint(p.mark == Mark::fail ? Colour::red : Colour::yellow, name_of(p.mark)),
                        places_of(found, ranks), p.what, p.text));
}

void say_as_text(const Preflight& found) {
    print(table_of(found));
    print(speed_table_of(found));
    say_problems(found);
    if (found.mark() == Mark::fail) return;
    std::set<std::string> hosts;
    for (const RankFacts& facts : found.ranks) hosts.insert(facts.host);
    say(fmt::format(
        "{}  {} on {} can train together: Invar {}, {}, one configuration, data that describe themselves alike",
        paint(Colour::green, name_of(Mark::pass)), count_of(std::int64_t(found.ranks.size()), "rank"),
        count_of(std::int64_t(hosts.size()), "host"), found.ranks[0].version, found.ranks[0].library));
}

}  // namespace

int preflight_command(const ConfigArguments& arguments, bool json, int& exit_code) {
    PreflightOptions options;
    try {
        options.config = arguments.load();
    } catch (const Error& error) {
        options.why_no_config = error.what();
    }
    exit_code = 1;
    const double timeout = options.config.value_or(Config{}).trainer.rank_timeout;
    set_rank_timeout(timeout);
    Communicator& ranks = join_world(timeout);
    if (!ranks.any(options.config.has_value())) fail<UsageError>("{}", options.why_no_config);
    LiveLine live;
    options.progress = [&](std::string_view what) {
        if (!json) live.show({fmt::format("checking: {}", what)});
    };
    const Preflight found = preflight(ranks, options);
    live.clear();
    if (json)
        say_as_json(found);
    else
        say_as_text(found);
    const Problem* const failure = found.first_failure();
    if (failure == nullptr) return 0;
    std::set<int> failed;
    for (const Problem& p : found.problems)
        if (p.mark == Mark::fail) failed.insert(p.rank);
    warn(fmt::format("error: {}: {}: {}{}", place_of(found, failure->rank), failure->what, failure->text,
                     failed.size() > 1
                         ? fmt::format(" ({} of the {} ranks have something wrong)", failed.size(), ranks.size())
                         : ""));
    return 1;
}

}  // namespace invar::cli
