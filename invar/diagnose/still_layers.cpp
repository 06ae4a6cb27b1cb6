// Layers that should learn and do not: frozen, cut off from the loss, without a gradient, or with one that FP32 rounds
// away.
#include <algorithm>
#include <cmath>

#include "invar/diagnose/run_faults.h"
#include "invar/diagnose/significance.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

// A module's parameters of its own.
struct Layer {
    std::string module;
    std::vector<std::size_t> parameters;
};

std::vector<Layer> layers_of(const std::vector<Parameter*>& parameters) {
    std::vector<Layer> layers;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string module = module_of(parameters[i]->name);
        auto known = std::ranges::find(layers, module, &Layer::module);
        if (known == layers.end()) known = layers.insert(layers.end(), {module, {}});
        known->parameters.push_back(i);
    }
    return layers;
}

std::string title(const std::string& module) {
    return module.empty() ? "the model's own weights" : module;
}

// "fc2 and 1 more": the last of them in the order of the model is where gradients, which come from behind, end.
std::string named(const std::vector<const Layer*>& layers) {
    const std::string last = title(layers.back()->module);
    return layers.size() == 1 ? last : fmt::format("{} and {} more before it", last, layers.size() - 1);
}

// Other values in a layer until the end of a scope.
class Moved {
  public:
    Moved(Setup& setup, const Layer& layer) {
        for (const std::size_t i : layer.parameters) {
            const Tensor& value = setup.optimizer->store().parameters()[i]->value;
            std::vector<float> values = value.to_vector<float>();
            kept_.emplace_back(value, values);
            for (std::size_t k = 0; k < values.size(); ++k) values[k] = 1.5f * values[k] + (k % 2 == 0 ? 0.1f : -0.05f);
            write(value, values);
        }
    }
    ~Moved() {
        for (const auto& [value, values] : kept_) write(value, values);
    }
    Moved(const Moved&) = delete;
    Moved& operator=(const Moved&) = delete;

  private:
    static void write(const Tensor& value, const std::vector<float>& values) {
        const Tensor there = ops::to(Tensor::from(values, value.shape(), Dtype::f32), value.device());
        kernels_for(value.device()).copy(there.view(), value.view());
        value.bump_version();
    }
    std::vector<std::pair<Tensor, std::vector<float>>> kept_;
};

bool loss_depends_on(Setup& setup, const Layer& layer, const StepStart& start, const LossFunction& loss) {
    const auto loss_now = [&] {
        return replay(*setup.model, *setup.optimizer, start, {kFullPrecision, 1.0, false, loss, nullptr}).loss;
    };
    const double before = loss_now();
    const Moved moved(setup, layer);
    return loss_now() != before;
}

// The first op of a step in FP32 that makes nothing but zeros of something else: ReLUs that are all off.
std::optional<SampledOps::Op> first_dead(Setup& setup, const StepStart& start, const LossFunction& loss) {
    SampledOps ops;
    replay(*setup.model, *setup.optimizer, start, {kFullPrecision, 1.0, false, loss, &ops});
    const auto all_zero = [](const std::vector<float>& v) {
        return std::ranges::all_of(v, [](float x) { return x == 0; });
    };
    for (SampledOps::Op& op : ops.ops)
        if (op.result.size() > 1 && all_zero(op.result) && !op.inputs.empty() && !all_zero(op.inputs.front()))
            return std::move(op);
    return {};
}

Concern concern_of(Concern::Kind kind, const std::string& module, std::string text) {
    Concern concern;
    concern.kind = kind;
    concern.direction = Direction::backward;
    concern.module = module;
    concern.text = std::move(text);
    return concern;
}

}  // namespace

void GradientWatch::observe(const Optimizer& optimizer) {
    const ParameterStore& store = optimizer.store();
    const std::vector<bool> have = store.have_gradients();
    const double rate = optimizer.learning_rate();
    const Tensor gradients = store.gradients().on_host();
    seen_.resize(have.size());
    ++steps_;
    for (std::size_t i = 0; i < have.size(); ++i) {
        if (!have[i]) continue;
        Seen& seen = seen_[i];
        ++seen.steps;
        seen.rate = std::max(seen.rate, rate);
        const Segment& place = store.places()[i];
        const float* values = gradients.data<float>() + place.begin;
        for (std::int64_t k = 0; k < place.count; ++k)
            seen.largest = std::max(seen.largest, double(std::fabs(values[k])));
    }
}

MaybeConcern GradientWatch::fault(Setup& setup, const StepStart& start, const LossFunction& loss,
                                  std::span<const std::string> freeze, std::span<const LostUpdates> updates) const {
    if (steps_ < 2) return {};  // a weight that is 0 in the first step may hide those before it
    const std::vector<Parameter*>& parameters = setup.optimizer->store().parameters();
    const auto learns = [&](std::size_t i) { return parameters[i]->value.requires_grad(); };
    const auto meant = [&](std::size_t i) {  // to be frozen
        return std::ranges::any_of(
            freeze, [&](const std::string& pattern) { return matches_parameter(pattern, parameters[i]->name); });
    };
    std::vector<Layer> layers = layers_of(parameters);
    for (const Layer& layer : layers)
        for (const std::size_t i : layer.parameters)
            if (!learns(i) && !meant(i)) {
                const bool all = std::ranges::none_of(layer.parameters, learns);
                return concern_of(Concern::Kind::frozen, layer.module,
                                  fmt::format("{} is frozen: requires_grad is false, and trainer.freeze does not name "
                                              "it; set_requires_grad(true) lets it learn",
                                              all ? title(layer.module) : parameters[i]->name));
            }
    std::vector<const Layer*> without, zero, still, learning;
    for (Layer& layer : layers) {
        std::erase_if(layer.parameters, [&](std::size_t i) { return !learns(i); });
        if (layer.parameters.empty()) continue;
        learning.push_back(&layer);
        const auto all = [&](const auto& holds) { return std::ranges::all_of(layer.parameters, holds); };
        if (all([&](std::size_t i) { return seen_[i].steps == 0; }))
            without.push_back(&layer);
        else if (all([&](std::size_t i) { return seen_[i].largest == 0; }))
            zero.push_back(&layer);
        else if (all([&](std::size_t i) { return updates[i].updates == 0 && seen_[i].rate > 0; }))
            still.push_back(&layer);
    }
    if (!without.empty()) {
        std::vector<const Layer*> cut, unused;
        for (const Layer* layer : without)
            (loss_depends_on(setup, *layer, start, loss) ? cut : unused).push_back(layer);
        if (cut.empty())
            return concern_of(
                Concern::Kind::no_gradient, unused.back()->module,
                fmt::format("the loss does not depend on {}: it is never used, and does not learn", named(unused)));
        return concern_of(
            Concern::Kind::frozen, cut.back()->module,
            fmt::format("no gradient reaches {}, though the loss depends on it: it is cut off behind there "
                        "by detach(), NoGrad or an op without a backward",
                        named(cut)));
    }
    if (!zero.empty() && zero.size() == learning.size())
        return concern_of(
            Concern::Kind::no_gradient, zero.back()->module,
            fmt::format("the gradient is 0 in every weight and in all {} steps: the loss is flat", steps_));
    if (!zero.empty()) {
        const std::optional<SampledOps::Op> dead = first_dead(setup, start, loss);
        const std::string why =
            dead ? fmt::format(
                       "{} in {} makes nothing but zeros of what it is given; look at the scale of its inputs "
                       "and at the weights before it",
                       dead->name, dead->module.empty() ? "the model itself" : dead->module)
                 : "what follows passes nothing back, as a saturated sigmoid does; look at its scale";
        return concern_of(Concern::Kind::no_gradient, dead ? dead->module : zero.back()->module,
                          fmt::format("the gradient of {} is 0 in all {} steps: {}", named(zero), steps_, why));
    }
    if (still.empty()) return {};
    const Layer& last = *still.back();
    double largest = 0.0, rate = 0.0;
    for (const std::size_t i : last.parameters)
        largest = std::max(largest, seen_[i].largest), rate = std::max(rate, seen_[i].rate);
    return concern_of(Concern::Kind::no_gradient, last.module,
                      fmt::format("{} does not move in {} steps: with gradients of at most {:.2g} and a rate of {:.2g} "
                                  "every update rounds to nothing, in FP32 too",
                                  named(still), steps_, largest, rate));
}

MaybeConcern scaled_clip_fault(Setup& setup, const StepStart& start, const LossFunction& loss, double scale) {
    constexpr double kOff = 0.01, kLess = 16.0, kGrown = 1.5;
    const ParameterStore& store = setup.optimizer->store();
    const auto norms_at = [&](double at) -> std::vector<double> {
        if (!replay(*setup.model, *setup.optimizer, start, {kFullPrecision, at, false, loss, nullptr}).finite)
            return {};
        const Tensor gradients = store.gradients().on_host();
        std::vector<double> norms;
        for (const Segment& place : store.places()) {
            double squares = 0.0;
            const float* values = gradients.data<float>() + place.begin;
            for (std::int64_t k = 0; k < place.count; ++k) squares += double(values[k]) * double(values[k]);
            norms.push_back(std::sqrt(squares) / at);
        }
        return norms;
    };
    // What clips holds the norm at one size whatever the scale; what rounds to 16 bits by itself does not.
    const std::vector<double> plain = norms_at(1.0), less = norms_at(scale / kLess), scaled = norms_at(scale);
    if (plain.empty() || less.empty() || scaled.empty()) return {};
    const double largest = *std::ranges::max_element(plain);
    // From the last one: behind where something happens to gradients they are as they should be.
    for (std::size_t i = plain.size(); i-- > 0;) {
        const bool held = scaled[i] > 0 && kLess * scaled[i] < kGrown * less[i];
        if (plain[i] <= kOff * largest || scaled[i] > (1 - kOff) * plain[i] || !held) continue;
        const std::string module = module_of(store.parameters()[i]->name);
        return concern_of(
            Concern::Kind::clipping, module,
            fmt::format("the gradient of {} is {:.2g} of what it should be at a loss scale of {:g}: something clips it "
                        "while it carries the scale; clip after unscaling, as trainer.gradient_clip_val does",
                        title(module), scaled[i] / plain[i], scale));
    }
    return {};
}

}  // namespace invar
