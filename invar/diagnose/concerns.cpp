#include "invar/diagnose/concerns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "invar/core/format_info.h"
#include "invar/diagnose/tensor_verdict.h"

namespace invar {

namespace {

constexpr int kStepsBefore = 3;     // before a step can stand out
constexpr double kAstray = 10;      // times the first loss, which no training does: seen before that too
constexpr double kJump = 8.0;       // times the largest so far
constexpr double kLayerJump = 4.0;  // what names the module
constexpr double kMany = 0.1;       // updates that are lost

std::string title(const std::string& module) {
    return module.empty() ? "the model itself" : module;
}

double jump(double now, double before) {
    return before > 0 ? now / before : 0.0;
}

}  // namespace

std::string_view name_of(Concern::Kind kind) {
    constexpr std::string_view kNames[] = {
        "underflow",     "spike",      "overflow",     "lost updates", "significance", "data",        "constant labels",
        "learning rate", "evaluation", "accumulation", "clipping",     "frozen layer", "no gradient", "moving average"};
    return kNames[static_cast<std::size_t>(kind)];
}

bool is_of_precision(Concern::Kind kind) {
    return kind < Concern::Kind::data && kind != Concern::Kind::spike;
}

double vanishing_share(const Tally& tally, Dtype format, int exponent) {
    const double limit = double(std::bit_cast<float>(thresholds_of(format).vanish));  // the largest that rounds to zero
    const int last = std::ilogb(limit);  // a bin that starts at the limit is spared: all but its first value survive
    std::int64_t below = 0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i)
        if (int(i) - 127 + exponent < last) below += tally.exponents[i];
    return tally.counted() > 0 ? double(below) / double(tally.counted()) : 0.0;
}

namespace {

// Of the tensor that loses the most.
struct Lost {
    double share = 0.0;
    const PassedTensor* tensor = nullptr;
};
Lost most_lost(const Passage& passage, Dtype format, int exponent) {
    Lost most;
    for (const PassedTensor& tensor : passage.tensors)
        if (const double share = lost_magnitude(tensor.tally, format, exponent); share > most.share)
            most = {share, &tensor};
    return most;
}

}  // namespace

ScaleRange scale_range(const Tally& gradients, Dtype format) {
    return scale_for_both(gradients, Tally(0), format);
}

ScaleRange scale_for_both(const Tally& a, const Tally& b, Dtype format) {
    constexpr double kFew = 0.001;
    constexpr int kFarthest = 126;
    constexpr int kHeadRoom = 3;  // doublings left for steps that were not seen
    const double largest = std::max(a.largest, b.largest);
    const auto vanishing = [&](int exponent) {
        return std::max(vanishing_share(a, format, exponent), vanishing_share(b, format, exponent));
    };
    ScaleRange range;
    range.any_gradients = a.counted() + b.counted() > 0;
    if (!range.any_gradients) return range;
    range.most = int(std::floor(std::log2(format_info(format).max) - std::log2(largest)));
    range.most = std::min(range.most, kFarthest);
    range.least = -kFarthest;
    while (range.least < kFarthest && vanishing(range.least) >= kFew) ++range.least;
    range.recommended = std::max(std::min(range.least, range.most), range.most - kHeadRoom);
    range.vanishing = vanishing(range.recommended);
    return range;
}

void SpikeWatch::observe(const StepFigures& now, const std::vector<LayerPassages>& layers, std::span<const Batch> group,
                         double rate, std::vector<Concern>& concerns) {
    double batch = 0.0;
    for (const Batch& b : group)
        for (const auto& [name, tensor] : b.tensors())
            if (is_floating(tensor.dtype())) batch = std::max(batch, range_of("", tensor).largest);
    const double by = std::max(jump(now.loss, loss_), jump(now.grad_norm, norm_));
    const bool told = std::ranges::find(concerns, Concern::Kind::spike, &Concern::kind) != concerns.end();
    if (seen_ == 0) first_loss_ = now.loss;
    const bool hard_batch = seen_ > 0 && jump(batch, batch_) > kLayerJump;
    if (!told && !hard_batch && seen_ > 0 && seen_ < kStepsBefore && now.loss > kAstray * std::fabs(first_loss_)) {
        Concern concern;
        concern.kind = Concern::Kind::spike;
        concern.step = seen_ + 1;
        concern.remedy = Remedy::of_learning_rate(rate / 10);
        concern.text = fmt::format(
            "step {}: the loss is {:.3g} times that of the untrained network, in FP32 too: the "
            "learning rate is too high",
            concern.step, now.loss / std::fabs(first_loss_));
        concerns.push_back(std::move(concern));
        astray_ = true;
    }
    if (seen_ >= kStepsBefore && by > kJump && !told) {  // what follows the first one follows from it
        Concern concern;
        concern.kind = Concern::Kind::spike;
        concern.step = seen_ + 1;
        concern.remedy = Remedy::of_gradient_clip(1);
        concern.in_data = jump(batch, batch_) > kLayerJump;
        const LayerPassages* found = nullptr;
        for (std::size_t i = 0; i < layers.size() && found == nullptr; ++i)
            if (jump(layers[i].forward.all.largest, forward_[layers[i].module]) > kLayerJump) found = &layers[i];
        for (std::size_t i = layers.size(); i-- > 0 && found == nullptr;)
            if (jump(layers[i].backward.all.largest, backward_[layers[i].module]) > kLayerJump)
                found = &layers[i], concern.direction = Direction::backward;
        concern.module = found != nullptr ? found->module : "";
        const std::string what = jump(now.loss, loss_) >= jump(now.grad_norm, norm_) ? "the loss" : "the gradient norm";
        concern.text = fmt::format("step {}: {} is {:.3g} times its largest before", concern.step, what, by);
        if (concern.in_data)
            concern.text +=
                fmt::format("; the batch has values up to {:.3g}, {:.3g} before: look at the data", batch, batch_);
        else if (found != nullptr)
            concern.text +=
                fmt::format("; values jump first in {}, {}", title(found->module), name_of(concern.direction));
        concerns.push_back(std::move(concern));
    }
    ++seen_;
    loss_ = std::max(loss_, now.loss), norm_ = std::max(norm_, now.grad_norm), batch_ = std::max(batch_, batch);
    for (const LayerPassages& layer : layers) {
        forward_[layer.module] = std::max(forward_[layer.module], layer.forward.all.largest);
        backward_[layer.module] = std::max(backward_[layer.module], layer.backward.all.largest);
    }
}

int judged_scale(const Diagnosis& d, Direction direction) {
    if (direction == Direction::forward || !d.scaled || !d.scale.any_gradients) return 0;
    return d.scaling == Scaling::moving ? d.scale.recommended : std::ilogb(d.scale_survived);
}

bool vanishes(const Diagnosis& d, const Passage& passage, Direction direction) {
    return most_lost(passage, d.format, judged_scale(d, direction)).share > kTooMuchLost;
}

bool overflows(const Diagnosis& d, const Passage& passage, Direction direction) {
    // The recommended scale is one at which no gradient does.
    if (direction == Direction::backward && d.scaled) return false;
    return passage.low.counted() > 0 && passage.low.formats[0].overflow > 0;
}

void add_range_concerns(Diagnosis& d) {
    const auto add = [&](Concern::Kind kind, Direction direction, const std::string& module, double share,
                         const std::string& what) {
        Concern c;
        c.kind = kind;
        c.direction = direction;
        c.module = module;
        const bool over = kind == Concern::Kind::overflow;
        const std::string amount = share < 0.005 ? "some" : fmt::format("{:.0f}%", 100 * share);
        c.text = fmt::format("{} of {} {} in {}, {}, in {}", amount, what, over ? "overflows" : "vanishes",
                             title(module), name_of(direction), name_of(d.format));
        if (direction == Direction::backward && d.scaled)
            c.text += d.scaling == Scaling::moving ? fmt::format(" at the best loss scale, 2^{}", d.scale.recommended)
                      : d.scaling == Scaling::fixed
                          ? fmt::format(" at the loss scale {:g}, which scaler.dynamic=false keeps", d.scale_survived)
                          : " without a loss scale";
        const bool by_scale = direction == Direction::backward && d.scaled && d.scaling != Scaling::moving &&
                              d.scale.vanishing <= kTooMuchLost;
        if (by_scale)
            c.remedy = d.scaling == Scaling::off ? Remedy::of_scaling()
                                                 : Remedy::of_init_scale(std::exp2(d.scale.recommended));
        else if (!module.empty() && module != "loss")
            c.remedy = Remedy::of_overrides({{module, kFullPrecision.name()}});
        d.concerns.push_back(std::move(c));
    };
    const auto look = [&](const LayerPassages& layer, Direction direction, Concern::Kind kind) {
        const Passage& passage = direction == Direction::forward ? layer.forward : layer.backward;
        const bool over = kind == Concern::Kind::overflow;
        if (!(over ? overflows(d, passage, direction) : vanishes(d, passage, direction))) return false;
        const Tally& low = passage.low;
        const Lost lost = over ? Lost{} : most_lost(passage, d.format, judged_scale(d, direction));
        add(kind, direction, layer.module, over ? double(low.formats[0].overflow) / double(low.counted()) : lost.share,
            over ? "what passes" : lost.tensor->what);
        return true;
    };
    for (const Concern::Kind kind : {Concern::Kind::overflow, Concern::Kind::underflow}) {
        if (kind == Concern::Kind::overflow && d.finding) continue;  // which says where, and more
        for (std::size_t i = 0; i < d.layers.size(); ++i)
            if (look(d.layers[i], Direction::forward, kind)) break;
        for (std::size_t i = d.layers.size(); i-- > 0;)
            if (look(d.layers[i], Direction::backward, kind)) break;
    }
}

// What vanishes or overflows has been told, and is no matter of digits.
void add_significance_concern(Diagnosis& d) {
    constexpr double kWrong = 0.1, kAmplified = 8.0, kElsewhere = 0.5;
    const auto ranged = [](const Concern& c) {
        return c.kind == Concern::Kind::underflow || c.kind == Concern::Kind::overflow;
    };
    if (d.finding || std::ranges::any_of(d.concerns, ranged)) return;
    const auto add = [&](const Significance& s, Direction direction, std::string text,
                         Concern::Kind kind = Concern::Kind::significance) {
        Concern c;
        c.kind = kind;
        c.direction = direction;
        c.module = s.module;
        c.text = std::move(text);
        if (!s.module.empty() && s.module != "loss")
            c.remedy = Remedy::of_overrides({{s.module, kFullPrecision.name()}});
        d.concerns.push_back(std::move(c));
    };
    for (const Significance& s : d.significance)
        if (!s.infinite_op.empty())
            return add(
                s, Direction::forward,
                fmt::format("{} in {} overflows in {}, though the step is finite: it gives at most {:.3g} in FP32",
                            s.infinite_op, title(s.module), name_of(d.format), s.in_full),
                Concern::Kind::overflow);
    const double rounding = format_info(d.format).epsilon;
    for (const Significance& s : d.significance)
        if (s.made > kWrong && s.made > kAmplified * std::max(s.given, rounding))
            return add(
                s, Direction::forward,
                fmt::format("{} in {} loses its digits in {}: what it is given is {:.2g}% off FP32, what it makes "
                            "of that {:.0f}%",
                            s.op, title(s.module), name_of(d.format), 100 * s.given, 100 * s.made));
    for (auto s = d.significance.rbegin(); s != d.significance.rend(); ++s)
        if (s->cosine < kElsewhere)
            return add(*s, Direction::backward,
                       fmt::format("the gradient of {} points elsewhere in {} than in FP32 (cosine {:.2f})",
                                   title(s->module), name_of(d.format), s->cosine));
}

void add_update_concern(Diagnosis& d, const Precision& candidate) {
    if (candidate.mixed() || !is_sixteen_bit(candidate.compute_dtype())) return;
    std::int64_t updates = 0, lost = 0;
    const LostUpdates* worst = nullptr;
    for (const LostUpdates& u : d.updates) {
        updates += u.updates, lost += u.lost;
        if (worst == nullptr || u.share() > worst->share()) worst = &u;
    }
    if (updates == 0 || double(lost) <= kMany * double(updates)) return;
    Concern c;
    c.kind = Concern::Kind::lost_updates;
    c.text = fmt::format(
        "{:.0f}% of the updates are lost: {} keeps its weights in {} alone, and rounding takes them back "
        "to what they were; worst is {}, {:.0f}%",
        100.0 * double(lost) / double(updates), candidate.name(), name_of(d.format), worst->parameter,
        100 * worst->share());
    c.remedy = Remedy::of_precision(candidate.compute_dtype() == Dtype::f16 ? "16-mixed" : "bf16-mixed");
    d.concerns.push_back(std::move(c));
}

}  // namespace invar
