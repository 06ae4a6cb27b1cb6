#include "invar/validate/benefits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/cpu_use.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/kernels.h"
#include "invar/validate/validated.h"

namespace invar {

namespace {

std::string speed_up_text(double speed_up) {
    return fmt::format("{:.2f}x", speed_up);
}

// "31%", or "-4% (it takes more)": what is saved may be less than nothing.
std::string savings_text(double ratio) {
    const double saved = 100 * (1 - ratio);
    return fmt::format("{:.0f}%{}", std::fabs(saved) < 0.5 ? 0.0 : saved, saved <= -0.5 ? " (it takes more)" : "");
}

bool is_amount(double value) {
    return std::isfinite(value) && value > 0;
}

bool is_whole(const Benefits& b) {
    return is_amount(b.samples_per_s) && is_amount(b.fp32_samples_per_s) && is_amount(b.peak_bytes) &&
           is_amount(b.fp32_peak_bytes);
}

}  // namespace

std::string machine_of(const std::string& device, int threads, int ranks) {
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0) return "";
    std::string text = fmt::format("{}: {}", host,
                                   device.empty() ? fmt::format("{} threads, {}", threads, cpu_description()) : device);
    return ranks > 1 ? fmt::format("{}, {} ranks", text, ranks) : text;
}

std::string machine_of(const Setup& setup) {
    const Device device = setup.device;
    const std::string text =
        device.is_cpu() ? "" : fmt::format("{}: {}", device.str(), kernels_for(device).description());
    return machine_of(text, threads(), setup.ranks->size());
}

std::optional<Benefits> benefits_of(const Arm& baseline, const Arm& arm) {
    Benefits b{arm.samples_per_s, baseline.samples_per_s, arm.memory_of("total"), baseline.memory_of("total"), ""};
    return arm.failed() || !arm.disturbed.empty() || !is_whole(b) ? std::nullopt : std::optional(b);
}

std::optional<Benefits> recall_benefits(const std::filesystem::path& file, const Config& config,
                                        const std::string& machine) {
    std::optional<Benefits> found;
    if (machine.empty()) return found;
    for_each_remembered(file, config, [&](const nlohmann::json& line) {
        if (line.value("machine", nlohmann::json()) != machine) return;
        const auto number = [&](const char* key) {
            const auto value = line.find(key);
            return value != line.end() && value->is_number() ? value->get<double>() : 0.0;
        };
        const nlohmann::json date = line.value("date", nlohmann::json());
        const Benefits b{number("samples_per_s"), number("fp32_samples_per_s"), number("peak_bytes"),
                         number("fp32_peak_bytes"), date.is_string() ? date.get<std::string>() : ""};
        if (is_whole(b)) found = b;
    });
    return found;
}

std::vector<std::string> expected_benefits(const Benefits& known) {
    return {"Training speedup: " + speed_up_text(known.speed_up()),
            "Memory savings: " + savings_text(known.memory_ratio())};
}

std::vector<std::string> measured_benefits(const Benefits& known, const RunSummary& summary) {
    const bool disturbed = !disturbance_of(summary.waited_share, "this run").empty();
    const Benefits now{summary.samples_per_s, known.fp32_samples_per_s, double(summary.memory.peak_total),
                       known.fp32_peak_bytes, ""};
    if (!is_whole(now) || summary.precisions.size() != 1) return {};
    std::vector<std::string> lines;
    if (!disturbed)
        lines.push_back(fmt::format("Training speedup: {}, expected {}", speed_up_text(now.speed_up()),
                                    speed_up_text(known.speed_up())));
    lines.push_back(fmt::format("Memory savings: {}, expected {}", savings_text(now.memory_ratio()),
                                savings_text(known.memory_ratio())));
    return lines;
}

}  // namespace invar
