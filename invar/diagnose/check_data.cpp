// The data of a split, read as training reads them and summed up.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"

namespace invar {

namespace {

constexpr std::size_t kLongest = 60;  // characters of what the data say of themselves
constexpr std::int64_t kChunk = 256;  // samples read at once, fewer where they are large:
constexpr std::int64_t kChunkValues = 1 << 24;
constexpr std::size_t kMostLabels = 1000;  // whole numbers of more kinds are no classes

// Sums up one name's tensors of all chunks.
class Collector {
  public:
    Collector(const std::string& name, const Tensor& tensor, std::int64_t samples) {
        summary.name = name;
        summary.dtype = tensor.dtype();
        summary.shape = sample_shape(tensor, samples);
        summary.min = std::numeric_limits<double>::infinity();
        summary.max = -summary.min;
        counts_labels_ = !is_floating(tensor.dtype()) && summary.shape.numel() == 1;
    }

    void add(const Tensor& tensor, std::span<const std::int64_t> samples) {
        const Shape shape = sample_shape(tensor, std::int64_t(samples.size()));
        summary.varies = summary.varies || !(shape == summary.shape);
        const std::vector<double> values = tensor.to_vector<double>();
        const std::size_t rows = has_rows_ ? samples.size() : 1, width = rows == 0 ? 0 : values.size() / rows;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (!std::isfinite(values[i])) {
                const std::int64_t sample = samples[has_rows_ ? i / width : 0];
                const bool first = summary.not_finite++ == 0;
                summary.first_not_finite = first ? sample : std::min(sample, summary.first_not_finite);
                continue;
            }
            summary.min = std::min(summary.min, values[i]);
            summary.max = std::max(summary.max, values[i]);
            sum_ += values[i];
            ++finite_;
        }
        if (counts_labels_ && values.size() == samples.size()) count_labels(values, samples);
    }

    TensorSummary finish() {
        const double none = std::numeric_limits<double>::quiet_NaN();
        summary.mean = finite_ > 0 ? sum_ / double(finite_) : none;
        if (finite_ == 0) summary.min = summary.max = none;
        return std::move(summary);
    }

    TensorSummary summary;

  private:
    // Without the dimension of samples, where the tensor has one.
    Shape sample_shape(const Tensor& tensor, std::int64_t samples) {
        Shape shape = tensor.shape();
        has_rows_ = shape.rank() > 0 && shape[0] == samples;
        if (has_rows_) shape.erase(0);
        return shape;
    }
    void count_labels(const std::vector<double>& values, std::span<const std::int64_t> samples) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            TensorSummary::Label& label = summary.labels[std::int64_t(values[i])];
            const bool first = label.samples++ == 0;
            label.first = first ? samples[i] : std::min(samples[i], label.first);
        }
        if (summary.labels.size() <= kMostLabels) return;
        summary.labels.clear();
        counts_labels_ = false;
    }

    bool has_rows_ = true, counts_labels_ = false;
    double sum_ = 0.0;
    std::int64_t finite_ = 0;
};

std::string text_of(const TensorSummary& t) {
    const std::string kind = fmt::format("{} {}{}{}", t.name, name_of(t.dtype), t.shape.rank() > 0 ? t.shape.str() : "",
                                         t.varies ? " and others" : "");
    if (t.labels.empty() && std::isnan(t.mean)) return fmt::format("{} without a finite value", kind);
    if (t.labels.empty()) return fmt::format("{} from {:.4g} to {:.4g}, mean {:.4g}", kind, t.min, t.max, t.mean);
    std::int64_t all = 0, fewest = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (const auto& [value, label] : t.labels) {
        all += label.samples;
        fewest = std::min(fewest, label.samples);
        most = std::max(most, label.samples);
    }
    if (t.labels.size() == 1) return fmt::format("{} with one class, {}", kind, t.labels.begin()->first);
    return fmt::format("{} with {} classes from {} to {}, of {:.3g}% to {:.3g}% of the samples", kind, t.labels.size(),
                       t.labels.begin()->first, t.labels.rbegin()->first, 100.0 * double(fewest) / double(all),
                       100.0 * double(most) / double(all));
}

}  // namespace

DataCheck check_data(const Task& task, Split split, std::int64_t most_samples, double seconds) {
    const TimeLimit limit(seconds);
    const std::shared_ptr<const Dataset> data = task.data(split);
    DataCheck result;
    result.split = split;
    result.samples = data->size();
    check(result.samples > 0, "{} has no samples", data->name());
    const std::vector<std::int64_t> chosen = spread_samples(*data, most_samples);
    // Chunks from all over, so that what was read when the time is up still tells of the whole.
    const std::int64_t large = std::max<std::int64_t>(1, data->info().input.numel());
    const std::int64_t chunk_size = std::clamp<std::int64_t>(kChunkValues / large, 1, kChunk);
    const std::int64_t chunks = (std::int64_t(chosen.size()) + chunk_size - 1) / chunk_size;
    std::vector<Collector> collectors;
    for (std::int64_t chunk = 0; chunk < chunks && (chunk == 0 || !limit.over()); ++chunk) {
        std::vector<std::int64_t> samples;
        for (std::size_t i = std::size_t(chunk); i < chosen.size(); i += std::size_t(chunks))
            samples.push_back(chosen[i]);
        const Batch batch = data->read(samples);
        check(batch.size == std::int64_t(samples.size()), "{}: {} samples were asked for, and the batch says it has {}",
              data->name(), samples.size(), batch.size);
        check(!batch.tensors().empty(), "{}: its batches have no tensors", data->name());
        for (const auto& [name, tensor] : batch.tensors()) {
            auto place = std::find_if(collectors.begin(), collectors.end(),
                                      [&, &wanted = name](const Collector& c) { return c.summary.name == wanted; });
            if (place == collectors.end()) {
                check(chunk == 0, "{}: some batches have a tensor {}, and others do not", data->name(), name);
                place = collectors.insert(collectors.end(), Collector(name, tensor, batch.size));
            }
            check(place->summary.dtype == tensor.dtype(), "{}: {} is {} in some batches and {} in others", data->name(),
                  name, name_of(place->summary.dtype), name_of(tensor.dtype()));
            place->add(tensor.on_host(), samples);
        }
        result.read += batch.size;
    }
    std::vector<std::string> texts;
    for (Collector& collector : collectors) {
        result.tensors.push_back(collector.finish());
        const TensorSummary& t = result.tensors.back();
        texts.push_back(text_of(t));
        // A constant target is learned at once, nothing is learned from a constant x, and neither tests what was.
        const bool named = t.name == "x" || t.name == "y";
        if (named && result.read > 1 && t.min == t.max && t.not_finite == 0) {
            result.mark = std::max(result.mark, Mark::warn);
            texts.back() += fmt::format(", the same in every sample: there is nothing to {}",
                                        split == Split::train ? "learn" : "tell apart");
        }
        if (t.not_finite == 0) continue;
        result.mark = Mark::fail;
        texts.back() +=
            fmt::format("; {} values are NaN or infinite, the first in sample {}", t.not_finite, t.first_not_finite);
    }
    if (split == Split::test) {  // what training would warn of before its first step
        const TimeLimit for_remarks(seconds);
        for (const Remark& remark : task.remarks_on_data([&] { return for_remarks.over(); })) {
            if (!remark.warning) continue;
            result.mark = std::max(result.mark, Mark::warn);
            texts.push_back(remark.text);
        }
    }
    if (split == Split::train)
        for (const auto& [name, value] : data->description())
            texts.push_back(
                fmt::format("{}: {}", name, value.size() > kLongest ? value.substr(0, kLongest) + "..." : value));
    const std::string read = result.read == result.samples ? "" : fmt::format(" ({} of them read)", result.read);
    result.text = fmt::format("{}, {} samples{}: {}", data->name(), result.samples, read, fmt::join(texts, "; "));
    return result;
}

}  // namespace invar
