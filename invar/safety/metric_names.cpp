#include "invar/safety/metric_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "invar/core/error.h"

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

bool holds(const std::string& text, std::string_view part) {
    return text.find(part) != text.npos;
}

// Short parts count only where a word begins ("acc" is in val_acc, not in cutmix_macc), longer ones anywhere.
template <std::size_t N>
bool holds_any(const std::string& text, const std::array<std::string_view, N>& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
        for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1))
            if (part.size() >= 4 || at == 0 || text[at - 1] == '_') return true;
        return false;
    });
}

constexpr std::array<std::string_view, 9> kLossLike = {"loss",     "error", "perplexity", "rmse",  "entropy",
                                                       "bits_per", "time",  "latency",    "memory"};
// These count as whole words alone: "fid" is not in fidelity, nor "cer" in certainty.
constexpr std::array<std::string_view, 14> kLossWords = {"err", "ppl", "mse", "mae", "mape", "smape", "wer",
                                                         "cer", "fid", "nll", "bpb", "bpc",  "ece",   "ter"};
constexpr std::array<std::string_view, 4> kHeldOut = {"val", "eval", "test", "dev"};
constexpr std::array<std::string_view, 16> kScoreLike = {"acc",    "hmean",     "f1",    "map",   "iou",  "dice",
                                                         "auc",    "bleu",      "rouge", "score", "top1", "top5",
                                                         "recall", "precision", "r2",    "psnr"};

// Columns that count or time something, and so are no metric of the model.
bool is_bookkeeping(const std::string& name) {
    constexpr std::array<std::string_view, 14> kParts = {"step",    "epoch",   "lr",     "seed",   "time",
                                                         "runtime", "memory",  "_per_s", "grad",   "scale",
                                                         "skipped", "tracker", "bytes",  "seconds"};
    return holds_any(name, kParts);
}

// The larger, the more this looks like what a validation is judged by.
int rank(const std::string& raw) {
    const std::string name = plain(raw);
    if (is_bookkeeping(name)) return 0;
    const bool held_out = holds_any(name, kHeldOut);
    if (holds_any(name, kScoreLike)) return held_out ? 5 : 2;
    if (holds(name, "loss")) return held_out ? 4 : 1;
    return held_out ? 3 : 0;
}

}  // namespace

Better direction_of(const std::string& metric) {
    const std::string name = plain(metric);
    const auto is_word = [&](std::string_view word) {
        return fmt::format("_{}_", name).find(fmt::format("_{}_", word)) != std::string::npos;
    };
    return holds_any(name, kLossLike) || std::ranges::any_of(kLossWords, is_word) ? Better::lower : Better::higher;
}

Better parse_direction(const std::string& text) {
    if (text == "higher") return Better::higher;
    if (text == "lower") return Better::lower;
    fail<UsageError>("--better {}: must be higher or lower", text.substr(0, 80));
}

Names matching_metrics(const std::string& wanted, const Names& names) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return {wanted};
    const std::string key = plain(wanted);
    if (key.empty()) return {};
    for (const std::string& name : names)
        if (plain(name) == key) return {name};
    Names found;
    for (const std::string& name : names)
        if (plain(name).ends_with("_" + key)) found.push_back(name);
    return found;
}

std::optional<std::string> find_metric(const std::string& wanted, const Names& names) {
    const Names found = matching_metrics(wanted, names);
    return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

Names metrics_among(const Names& names) {
    Names found;
    for (const std::string& name : names)
        if (const std::string n = plain(name); !is_bookkeeping(n) || (holds(n, "loss") && !holds(n, "scale")))
            found.push_back(name);
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
        "total_loss", "train_loss_epoch", "loss_step"};
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
