// What people call their metrics: finding the one that was asked for among those there are, which way is better, and
// the ones every report wants (loss, loss scale, gradient norm, speed).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "invar/tasks/metric.h"

namespace invar {

// As its words say: "val/top1_error" is better when lower. Nothing where they do not.
std::optional<Better> direction_of(const std::string& metric);
// The same, or a UsageError that asks for --direction.
Better need_direction(const std::string& metric);
Better parse_direction(const std::string& text);  // "higher" or "lower"; throws UsageError

// The name in `names` that `wanted` means: itself, one that differs in case or in the separators / _ . - alone, or the
// only one that ends in it ("hmean" for "val/hmean"), or does so before the _epoch or _step that Lightning appends
// ("val_loss" for "val_loss_epoch"). Nothing where there is none.
std::optional<std::string> find_metric(const std::string& wanted, const std::vector<std::string>& names);
// All that `wanted` may mean: one where that is clear, several of those, or none.
std::vector<std::string> matching_metrics(const std::string& wanted, const std::vector<std::string>& names);
// Those that do not merely count or time something.
std::vector<std::string> metrics_among(const std::vector<std::string>& names);
// The first of what others call the same thing.
std::optional<std::string> find_any(const std::vector<std::string>& wanted, const std::vector<std::string>& names);

// What validation is mostly judged by: a score on validation data, else an error or a loss on it, else one on any. ""
// where nothing looks like a metric.
std::string default_metric(const std::vector<std::string>& names);
// Whether it was measured on data that was not trained on, as far as its name says.
bool is_held_out(const std::string& metric);

// Whether it counts samples that are right, so that it is a share of them, as far as its name says.
bool counts_samples(const std::string& metric);

// Names under which loggers keep them, most usual first.
const std::vector<std::string>& loss_names();
const std::vector<std::string>& scale_names();
const std::vector<std::string>& gradient_norm_names();
const std::vector<std::string>& speed_names();
const std::vector<std::string>& seconds_names();
const std::vector<std::string>& memory_names();  // in bytes

}  // namespace invar
