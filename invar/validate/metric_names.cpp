#include "invar/validate/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "invar/core/error.h"
#include "invar/validate/metric_words.h"

namespace invar {

namespace {

using Names = std::vector<std::string>;

// "Val/Hmean" -> "val_hmean"
std::string plain(std::string_view name) {
    std::string out;
    for (const char c : name)
        out += c == '/' || c == '.' || c == '-' || c == ' ' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

// Columns that count or time something, and so are no metric of the model.
bool is_bookkeeping(Words words) {
    static constexpr std::string_view kWords =
        " step steps epoch epochs iteration iterations iter it batch lr learning seed time runtime "
        "elapsed sec seconds timestamp memory bytes grad gradient gnorm scale scaler skipped tracker "
        "samples tokens images throughput flos wall checkpoint ";
    // Lightning writes val_acc_epoch and train_loss_step: of what, not how many.
    if (words.size() > 1 && (words.back() == "epoch" || words.back() == "step")) {
        const Words rest(words.begin(), words.end() - 1);
        if (direction_by(rest)) words = rest;
    }
    return std::ranges::any_of(words, [](const std::string& word) { return is_one_of(word, kWords); });
}

bool is_held_out(const Words& words) {
    static constexpr std::string_view kWords = " val valid validation eval evaluation test testing dev heldout ";
    return std::ranges::any_of(words, [](const std::string& word) { return is_one_of(word, kWords); });
}

// The larger, the more this looks like what a validation is judged by.
int rank(const std::string& name) {
    const Words words = metric_words(name);
    if (is_bookkeeping(words)) return 0;
    const std::optional<Better> direction = direction_by(words);
    const bool loss = std::ranges::any_of(words, [](const std::string& word) { return word.ends_with("loss"); });
    const int whole = words.back() == "step" ? 0 : words.back() == "epoch" ? 1 : 2;  // of an epoch, not of a batch
    if (!is_held_out(words)) return direction == Better::higher && !loss ? 20 + whole : loss ? 10 + whole : 0;
    const int validation = is_one_of(words.front(), " test testing ") ? 0 : 5;
    const int kind = loss ? 40 : direction == Better::higher ? 60 : direction == Better::lower ? 50 : 30;
    return kind + validation + whole;
}

}  // namespace

bool is_held_out(const std::string& metric) {
    return is_held_out(metric_words(metric));
}

bool counts_samples(const std::string& metric) {
    static constexpr std::string_view kWords = " acc accuracy accuracies top1 top5 correct ";
    return std::ranges::any_of(metric_words(metric), [](const std::string& word) { return is_one_of(word, kWords); });
}

std::optional<Better> direction_of(const std::string& metric) {
    return direction_by(metric_words(metric));
}

Better need_direction(const std::string& metric) {
    const std::optional<Better> found = direction_of(metric);
    check<UsageError>(found.has_value(),
                      "the name {} does not say which way is better; say it with --direction lower or --direction "
                      "higher",
                      metric.substr(0, 200));
    return *found;
}

Better parse_direction(const std::string& text) {
    if (text == "higher") return Better::higher;
    if (text == "lower") return Better::lower;
    fail<UsageError>("--direction {}: must be higher or lower", text.substr(0, 80));
}

Names matching_metrics(const std::string& wanted, const Names& names) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return {wanted};
    const std::string key = plain(wanted);
    if (key.empty()) return {};
    for (const std::string& name : names)
        if (plain(name) == key) return {name};
    Names found;
    const auto means = [&](std::string_view name) { return name == key || name.ends_with("_" + key); };
    for (const std::string& name : names) {
        const std::string whole = plain(name);
        // Lightning calls what was logged as val_loss val_loss_epoch, and the same of each batch val_loss_step.
        std::string_view stem = whole;
        for (const std::string_view suffix : {"_epoch", "_step"})
            if (stem.ends_with(suffix)) stem.remove_suffix(suffix.size());
        if (means(whole) || means(stem)) found.push_back(name);
    }
    return found;
}

std::optional<std::string> find_metric(const std::string& wanted, const Names& names) {
    const Names found = matching_metrics(wanted, names);
    return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

Names metrics_among(const Names& names) {
    Names found;
    for (const std::string& name : names)
        if (!is_bookkeeping(metric_words(name))) found.push_back(name);
    return found;
}

std::optional<std::string> find_any(const Names& wanted, const Names& names) {
    for (const std::string& one : wanted)
        for (const std::string& name : names)
            if (plain(name) == plain(one)) return name;
    return std::nullopt;
}

std::string default_metric(const Names& names) {
    std::string best;
    int best_rank = 0;
    for (const std::string& name : names)
        if (const int r = rank(name); r > best_rank) best = name, best_rank = r;
    return best;
}

const Names& loss_names() {
    static const Names names = {
        "loss",       "train_loss",       "train_loss_step", "training_loss", "train_total_loss",
        "total_loss", "train_loss_epoch", "loss_step",       "loss_epoch"};
    return names;
}
const Names& scale_names() {
    static const Names names = {"scale",        "loss_scale",      "amp_scale", "grad_scale", "grad_scaler_scale",
                                "scaler_scale", "train_loss_scale"};
    return names;
}
const Names& gradient_norm_names() {
    static const Names names = {"grad_norm",       "train_grad_norm", "gradient_norm", "grad_2_0_norm_total",
                                "grad_norm_total", "total_norm",      "gnorm"};
    return names;
}
const Names& speed_names() {
    static const Names names = {
        "samples_per_s", "samples_per_second", "train_samples_per_second", "tokens_per_s",     "tokens_per_second",
        "images_per_s",  "throughput",         "speed_samples_per_s",      "steps_per_second", "train_steps_per_second",
        "it_s"};
    return names;
}
const Names& seconds_names() {
    static const Names names = {"train_seconds", "train_runtime", "training_time", "_runtime",
                                "elapsed",       "seconds",       "time"};
    return names;
}
const Names& memory_names() {
    static const Names names = {"peak_bytes_total",     "memory_total",      "memory_peak_bytes",
                                "max_memory_allocated", "peak_memory_bytes", "memory_bytes"};
    return names;
}

}  // namespace invar
