#include "invar/train/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/io/file.h"
#include "invar/train/logged_names.h"
#include "invar/train/run_folder.h"

namespace invar {

namespace fs = std::filesystem;

double RunSummary::val(std::string_view metric) const {
    for (const Measured& measured : validation)
        if (measured.metric.name == metric) return measured.value;
    return std::numeric_limits<double>::quiet_NaN();
}

JsonLine summary_line(const Config& config, const RunSummary& s, const Device& device) {
    JsonLine line;
    line.add("exp_name", config.exp_name)
        .add("status", s.status)
        .add("model", config.model.name())
        .add("data", config.data.name());
    line.add("precision", s.precision).add("device", device.str()).add("seed", config.seed);
    line.add("epochs", s.epochs)
        .add("steps", s.steps)
        .add(logged::kSkipped, s.skipped)
        .add("alerts", s.alerts)
        .add(logged::kScale, s.final_scale);
    if (s.steps > 0) line.add(logged::kLoss, s.train_loss);
    for (const Measured& measured : s.validation) line.add(logged::of_validation(measured.metric.name), measured.value);
    line.add("train_seconds", s.train_seconds)
        .add(logged::kSamplesPerS, s.samples_per_s)
        .add(logged::kMaxGradNorm, s.max_grad_norm);
    if (!s.rate.of_samples()) line.add(s.rate.name(), s.rate.per_second);
    if (s.rate.mfu > 0) line.add(logged::kMfu, s.rate.mfu);
    if (std::isfinite(s.waited_share)) line.add("waited_share", s.waited_share);
    JsonLine precisions;
    for (const PrecisionSpan& span : s.precisions) precisions.add(std::to_string(span.step), span.precision);
    line.add("precision_by_step", precisions).add("recoveries", std::int64_t(s.recoveries.size()));
    for (std::size_t i = 0; i < s.recoveries.size(); ++i) {
        const Recovery& r = s.recoveries[i];
        JsonLine recovery;
        recovery.add("failed_at", r.failed_at).add("back_to", r.back_to).add("from", r.from).add("to", r.to);
        recovery.add("reason", r.reason);
        if (r.remedy) recovery.add("setting", r.remedy.str());
        line.add(fmt::format("recovery_{}", i + 1), recovery);
    }
    if (s.best_checkpoint) {
        const BestCheckpoint& b = *s.best_checkpoint;
        JsonLine best;
        best.add("step", b.step).add("file", "checkpoints/" + CheckpointFolder::name_of(b.step));
        best.add("monitor", b.monitor);
        line.add("best_checkpoint", best.add("value", b.value));
    }
    if (!s.stopped_early.empty()) line.add("stopped_early", s.stopped_early);
    line.add("all_finite", s.all_finite).add(logged::kPeakBytes, memory_line(s.memory.peak, s.memory.peak_total));
    return line;
}

constexpr std::uint64_t kMostOfSummary = std::uint64_t(1) << 24;  // bytes; one has a few thousand

nlohmann::json read_summary(const fs::path& file) {
    std::error_code ignored;
    const bool readable = fs::is_regular_file(file, ignored);
    return nlohmann::json::parse(readable ? read_file(file, kMostOfSummary) : "", nullptr, false);
}

EarlierTotals EarlierTotals::read(const nlohmann::json& summary, std::int64_t step) {
    EarlierTotals totals;
    const double steps = summary.at("steps");
    if (steps <= 0) return totals;
    totals.speed.seconds = summary.at("train_seconds").get<double>() * std::min(double(step) / steps, 1.0);
    totals.speed.samples_per_s = summary.at(logged::kSamplesPerS);
    if (summary.contains("waited_share")) totals.waited_share = summary.at("waited_share");
    const nlohmann::json& peak = summary.at(logged::kPeakBytes);
    for (int i = 0; i < kPurposes; ++i) totals.memory.peak[std::size_t(i)] = peak.at(name_of(Purpose(i)));
    totals.memory.peak_total = peak.at("total");
    return totals;
}

double EarlierTotals::waited_share_with(double now, double seconds) const {
    const double all = speed.seconds + seconds;
    if (std::isnan(waited_share) || !(all > 0)) return now;
    if (std::isnan(now) || !(seconds > 0)) return waited_share;
    return (speed.seconds * waited_share + seconds * now) / all;
}

MemoryStats EarlierTotals::memory_with(MemoryStats now) const {
    for (std::size_t i = 0; i < now.peak.size(); ++i) now.peak[i] = std::max(now.peak[i], memory.peak[i]);
    now.peak_total = std::max(now.peak_total, memory.peak_total);
    return now;
}

}  // namespace invar
