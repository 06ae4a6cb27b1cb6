#include "invar/diagnose/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/diagnose/preflight_parts.h"
#include "invar/dist/launcher.h"
#include "invar/dist/roll_call.h"
#include "invar/kernels/devices.h"
#include "invar/train/checkpoint_writer.h"
#include "invar/train/setup.h"

namespace invar {

namespace {

constexpr double kClockWarns = 1.0;  // seconds apart

using Json = nlohmann::json;

std::string to_text(const OwnFindings& found) {
    const RankFacts& f = found.facts;
    Json problems = Json::array();
    for (const Problem& p : found.problems) problems.push_back({p.rank, int(p.mark), p.what, p.text});
    const Json all = {f.host,        f.device,        f.version,      f.library,       f.train_data,
                      f.test_data,   f.train_samples, f.test_samples, f.memory_needed, f.memory_there,
                      f.disk_needed, f.disk_there,    f.memory_of,    problems};
    return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

OwnFindings from_text(const std::string& text) {
    const Json all = Json::parse(text);
    OwnFindings found;
    RankFacts& f = found.facts;
    std::size_t at = 0;
    const auto next = [&](auto& value) { all.at(at++).get_to(value); };
    for (std::string* value : {&f.host, &f.device, &f.version, &f.library, &f.train_data, &f.test_data}) next(*value);
    for (std::int64_t* value :
         {&f.train_samples, &f.test_samples, &f.memory_needed, &f.memory_there, &f.disk_needed, &f.disk_there})
        next(*value);
    next(f.memory_of);
    for (const Json& p : all.at(at)) found.problems.push_back({p[0], Mark(p[1].get<int>()), p[2], p[3]});
    return found;
}

void compare_with_first(const std::vector<RankFacts>& ranks, std::vector<Problem>& problems) {
    struct Compared {
        const char *what, *name;
        std::string RankFacts::*value;
    };
    for (const auto& [what, name, value] : {Compared{"device", "the device", &RankFacts::device},
                                            {"version", "Invar", &RankFacts::version},
                                            {"version", "the library of messages", &RankFacts::library},
                                            {"data", "what is trained on", &RankFacts::train_data},
                                            {"data", "what is validated on", &RankFacts::test_data}})
        for (std::size_t r = 1; r < ranks.size(); ++r)
            if (const std::string& mine = ranks[r].*value, &first = ranks[0].*value;
                mine != first && !mine.empty() && !first.empty())
                problems.push_back(
                    {int(r), Mark::fail, what, fmt::format("{} is '{}', and '{}' on rank 0", name, mine, first)});
}

// What ranks that share a memory need together against what is there. The first of them is named.
void compare_memory(const std::vector<RankFacts>& ranks, std::vector<Problem>& problems) {
    struct Shared {
        int first = 0, ranks = 0;
        std::int64_t needed = 0, there = 0;
    };
    std::map<std::string, Shared> memories;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (ranks[r].memory_needed == 0 || ranks[r].memory_there == 0) continue;
        Shared& shared =
            memories.try_emplace(ranks[r].memory_of, Shared{int(r), 0, 0, ranks[r].memory_there}).first->second;
        ++shared.ranks;
        shared.needed += ranks[r].memory_needed;
        shared.there = std::min(shared.there, ranks[r].memory_there);
    }
    for (const auto& [name, shared] : memories)
        if (shared.needed > shared.there)
            problems.push_back({shared.first, Mark::fail, "memory",
                                fmt::format("{} rank{} on it need{} {} to train, and {} is there", shared.ranks,
                                            shared.ranks == 1 ? "" : "s", shared.ranks == 1 ? "s" : "",
                                            bytes_text(shared.needed), bytes_text(shared.there))});
}

// Who cannot write at all has said so.
void look_at_folder(Communicator& ranks, const Config& config, std::vector<Problem>& problems) {
    for (const Problem& each : problems)
        if (each.what == "disk") return;
    const std::vector<std::string> found = who_does_not_share(ranks, nearest_folder(config.output_dir));
    for (std::size_t r = 0; r < found.size(); ++r)
        if (!found[r].empty()) problems.push_back({int(r), Mark::fail, "disk", found[r]});
}

void compare_clocks(Communicator& ranks, const PreflightOptions& options, Preflight& result) {
    const auto system = [] {
        return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    };
    const std::vector<double> offsets =
        clock_offsets(ranks, options.wall_clock ? options.wall_clock : system, result.clock_error);
    for (std::size_t r = 0; r < offsets.size(); ++r) {
        result.ranks[r].clock_offset = offsets[r];
        if (std::abs(offsets[r]) > kClockWarns + result.clock_error)
            result.problems.push_back({int(r), Mark::warn, "clock",
                                       fmt::format("its clock is {:.1f} s {} that of rank 0", std::abs(offsets[r]),
                                                   offsets[r] > 0 ? "ahead of" : "behind")});
    }
}

void examine(Communicator& ranks, const PreflightOptions& options, Preflight& result) {
    const auto step = [&](std::string_view what) {
        if (options.progress) options.progress(what);
    };
    for (const std::string& host : ranks.gathered(host_name())) result.ranks.push_back({.host = host});
    const int size = ranks.size(), rank = ranks.rank();
    step("configuration");
    const bool all_have_one = !ranks.any(!options.config);
    if (all_have_one) {
        const Config& config = *options.config;
        if (const auto difference = difference_of_settings(ranks, config))
            result.problems.push_back(
                {difference->rank, Mark::fail, "configuration", "it differs: " + difference->text});
        else if (config.data.batch_size < size)
            result.problems.push_back({0, Mark::fail, "configuration",
                                       fmt::format("data.batch_size={} is less than the {} ranks that share a batch",
                                                   config.data.batch_size, size)});
    }
    step("data, memory, disk");
    OwnFindings own;
    if (options.config)
        own = look_around(*options.config, rank, size);
    else
        own = {{.host = host_name()}, {{rank, Mark::fail, "configuration", options.why_no_config}}};
    own.facts.library = ranks.name();
    const std::vector<std::string> found = ranks.gathered(to_text(own));
    bool device_there = true;
    for (int r = 0; r < size; ++r) {
        const OwnFindings each = from_text(found[std::size_t(r)]);
        result.ranks[std::size_t(r)] = each.facts;
        result.problems.insert(result.problems.end(), each.problems.begin(), each.problems.end());
        device_there = device_there && !each.facts.device.empty();
    }
    compare_with_first(result.ranks, result.problems);
    compare_memory(result.ranks, result.problems);
    if (all_have_one) look_at_folder(ranks, *options.config, result.problems);
    step("clocks");
    compare_clocks(ranks, options, result);
    step("exchange");
    const Device device = device_there ? resolve_device(options.config->trainer.device) : Device{};
    result.speeds = try_exchange(ranks, device, result.problems);
}

// "; ranks 0 to 3 are on host a, rank 4 is on host b"
std::string hosts_text(const std::vector<RankFacts>& ranks) {
    std::string text;
    for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
        while (end < ranks.size() && ranks[end].host == ranks[first].host) ++end;
        text += text.empty() ? "; " : ", ";
        text += end - first == 1 ? fmt::format("rank {} is", first) : fmt::format("ranks {} to {} are", first, end - 1);
        text += fmt::format(" on host {}", ranks[first].host);
    }
    return text;
}

}  // namespace

Mark Preflight::mark() const {
    Mark worst = Mark::pass;
    for (const Problem& problem : problems) worst = std::max(worst, problem.mark);
    return worst;
}

const Problem* Preflight::first_failure() const {
    const auto found = std::ranges::find(problems, Mark::fail, &Problem::mark);
    return found == problems.end() ? nullptr : &*found;
}

Preflight preflight(Communicator& ranks, const PreflightOptions& options) {
    Preflight result;
    try {
        examine(ranks, options, result);
    } catch (const RankError& error) {
        // One that was lost before it could say where it is, is here where all are.
        if (const Launch launch = launch_from_environment(); result.ranks.empty() && launch.local_size == launch.size)
            result.ranks.resize(std::size_t(launch.size), {.host = host_name()});
        throw RankError(error.what() + hosts_text(result.ranks));
    }
    return result;
}

}  // namespace invar
