#include "invar/safety/concerns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "invar/core/format_info.h"

namespace invar {

namespace {

constexpr int kStepsBefore = 3;     // before a step can stand out
constexpr double kJump = 8.0;       // times the largest so far
constexpr double kLayerJump = 4.0;  // what names the module
constexpr double kMany = 0.1;       // vanishing

std::string title(const std::string& module) {
    return module.empty() ? "the model itself" : module;
}

double jump(double now, double before) {
    return before > 0 ? now / before : 0.0;
}

}  // namespace

double vanishing_share(const Tally& tally, Dtype format, int exponent) {
    const double limit = double(std::bit_cast<float>(thresholds_of(format).vanish));  // the largest that rounds to zero
    const int last = std::ilogb(limit);  // a bin that starts at the limit is spared: all but its first value survive
    std::int64_t below = 0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i)
        if (int(i) - 127 + exponent < last) below += tally.exponents[i];
    return tally.counted() > 0 ? double(below) / double(tally.counted()) : 0.0;
}

ScaleRange scale_range(const Tally& gradients, Dtype format) {
    constexpr double kFew = 0.001;
    constexpr int kFarthest = 126;
    constexpr int kHeadRoom = 3;  // doublings left for steps that were not seen
    ScaleRange range;
    range.any_gradients = gradients.counted() > 0;
    if (!range.any_gradients) return range;
    range.most = int(std::floor(std::log2(format_info(format).max) - std::log2(gradients.largest)));
    range.most = std::min(range.most, kFarthest);
    range.least = -kFarthest;
    while (range.least < kFarthest && vanishing_share(gradients, format, range.least) >= kFew) ++range.least;
    range.recommended = std::max(std::min(range.least, range.most), range.most - kHeadRoom);
    range.vanishing = vanishing_share(gradients, format, range.recommended);
    return range;
}

void SpikeWatch::observe(const StepFigures& now, const std::vector<LayerPassages>& layers, std::span<const Batch> group,
                         std::vector<Concern>& concerns) {
    double batch = 0.0;
    for (const Batch& b : group) batch = std::max(batch, range_of("", b.x).largest);
    const double by = std::max(jump(now.loss, loss_), jump(now.grad_norm, norm_));
    if (seen_ >= kStepsBefore && by > kJump) {
        Concern concern;
        concern.kind = Concern::Kind::spike;
        concern.step = seen_ + 1;
        concern.remedy = "trainer.gradient_clip_val=1";
        concern.in_data = jump(batch, batch_) > kLayerJump;
        const LayerPassages* found = nullptr;
        for (std::size_t i = 0; i < layers.size() && found == nullptr; ++i)
            if (jump(layers[i].forward.all.largest, forward_[layers[i].module]) > kLayerJump) found = &layers[i];
        for (std::size_t i = layers.size(); i-- > 0 && found == nullptr;)
            if (jump(layers[i].backward.all.largest, backward_[layers[i].module]) > kLayerJump)
                found = &layers[i], concern.direction = Direction::backward;
        concern.module = found != nullptr ? found->module : "";
        const std::string what = jump(now.loss, loss_) >= jump(now.grad_norm, norm_) ? "the loss" : "the gradient norm";
        concern.text = fmt::format("step {}: {} is {:.0f} times its largest before", concern.step, what, by);
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

void add_underflow_concerns(Diagnosis& d, bool scaled) {
    const auto concern = [&](Direction direction, const std::string& module, double share, const std::string& at) {
        Concern c;
        c.direction = direction;
        c.module = module;
        c.text = fmt::format("{:.0f}% of what passes {} through {} vanishes in {}{}", 100 * share, name_of(direction),
                             title(module), name_of(d.format), at);
        if (!module.empty() && module != "loss")
            c.remedy = fmt::format("trainer.precision_overrides={{{}: 32-true}}", module);
        d.concerns.push_back(std::move(c));
    };
    for (const LayerPassages& layer : d.layers) {
        const double share = vanishing_share(layer.forward.low, d.format, 0);
        if (share <= kMany) continue;
        concern(Direction::forward, layer.module, share, "");
        break;
    }
    const int exponent = scaled && d.scale.any_gradients ? d.scale.recommended : 0;
    for (std::size_t i = d.layers.size(); i-- > 0;) {
        const double share = vanishing_share(d.layers[i].backward.low, d.format, exponent);
        if (share <= kMany) continue;
        concern(Direction::backward, d.layers[i].module, share,
                scaled ? fmt::format(" at the best loss scale, 2^{}", exponent) : "");
        break;
    }
}

}  // namespace invar
