#include "invar/optim/grad_scaler.h"

#include <cmath>

#include "invar/amp/autocast.h"
#include "invar/autograd/watch.h"
#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/reduce.h"

namespace invar {

static_assert(offsetof(ScaleState, scale) == 0, "the loss is multiplied by the first float of the state");
static_assert(sizeof(ScaleState) % sizeof(float) == 0);

namespace {

// Normal FP32 numbers: what is larger is infinite there, what is smaller has no finite reciprocal.
bool can_be_scale(double scale) {
    return scale >= 1.17549435e-38 && scale <= 3.4e38;
}

// A recording of the step holds the options as they are now, and one that fails half-way leaves no step begun.
void note_recorded(GradScaler& scaler) {
    HostSide* const recorded = HostSide::current();
    if (recorded == nullptr) return;
    recorded->depends_on([&scaler] { return scaler.spec(); });
    recorded->undo([&scaler] { scaler.forget_step(); });
}

void add_loss(const Tensor& loss, Tensor& sum) {
    const NoGrad no_grad;
    const WatchScope unwatched(nullptr);
    const Autocast as_it_is(Autocast::off());
    const Tensor one = loss.numel() == 1 ? loss.detach() : ops::sum(loss.detach());
    sum = sum ? sum + one.window(0, sum.shape()) : one;
}

// loss * scale. That the loss counts is known when backward comes by: one that was looked at and left is no part of a
// step.
class ScaledLoss : public Node {
  public:
    ScaledLoss(const Tensor& loss, Tensor scale, const std::shared_ptr<Tensor>& sum)
        : loss_(loss.detach()), scale_(std::move(scale)), sum_(sum) {
        set_inputs({gradient_edge(loss)});
    }
    const char* name() const override { return "scale_loss"; }
    Tensors backward(const Tensor& gradient) override {
        check(loss_.defined(), "{}: backward ran through this operation before; pass keep_graph to the first one",
              where());
        add_loss(loss_, *sum_);
        return {ops::mul(gradient, scale_)};
    }
    void release() override { loss_ = {}; }

  private:
    Tensor loss_, scale_;
    std::shared_ptr<Tensor> sum_;
};

}  // namespace

GradScaler::GradScaler(const ScalerOptions& options, Device device) {
    const PurposeScope purpose(Purpose::optimizer);
    state_ = Tensor::empty({std::int64_t(sizeof(ScaleState) / sizeof(float))}, Dtype::f32, device);
    configure(options);
}

void GradScaler::configure(const ScalerOptions& options) {
    spec_ = options.spec;
    check<UsageError>(can_be_scale(options.init_scale), "scaler: the initial scale {} is not a positive FP32 number",
                      options.init_scale);
    if (spec_.dynamic) {
        check<UsageError>(spec_.growth_factor > 1.0, "scaler: the growth factor {} must be above 1",
                          spec_.growth_factor);
        check<UsageError>(spec_.backoff_factor > 0.0 && spec_.backoff_factor < 1.0,
                          "scaler: the backoff factor {} must be between 0 and 1", spec_.backoff_factor);
        check<UsageError>(spec_.growth_interval > 0, "scaler: the growth interval {} must be above 0",
                          spec_.growth_interval);
        check<UsageError>(spec_.hysteresis > 0, "scaler: the hysteresis {} must be above 0", spec_.hysteresis);
        check<UsageError>(spec_.min_scale >= 0.0f && (spec_.max_scale == 0.0f || spec_.max_scale >= spec_.min_scale),
                          "scaler: the scale's floor {} and ceiling {} are the wrong way round", spec_.min_scale,
                          spec_.max_scale);
    }
    forget_step();
    ScaleState state;
    state.scale = enabled() ? float(options.init_scale) : 1.0f;
    state.hysteresis_left = spec_.hysteresis;
    set_state(state);
}

Tensor GradScaler::scale(const Tensor& loss) {
    const bool recorded = GradMode::recording() && loss.requires_grad();
    if (!enabled() && !recorded) return loss;
    if (!enabled() && !stages_.empty()) forget_step();  // it may be used without update()
    note_recorded(*this);
    scaled_ = true;
    const PurposeScope purpose(Purpose::activations);
    const Tensor scale = state_.window(0, {});  // 1 where it is disabled: what remains is that the loss is known
    const NoGrad no_grad;
    const Tensor scaled = enabled() ? ops::mul(loss, scale) : loss.detach();
    if (recorded) scaled.set_node(std::make_shared<ScaledLoss>(loss, scale, loss_));
    return scaled;
}

void GradScaler::unscale(Optimizer& optimizer) {
    if (!enabled()) return;
    Stage& stage = stages_[&optimizer];
    check(stage != Stage::unscaled, "unscale() was already called on this optimizer since the last update()");
    check(stage != Stage::stepped,
          "unscale() comes before step(), and this optimizer has stepped since the last update()");
    const View gradients = optimizer.store().gradients().view();
    Kernels& kernels = optimizer.kernels();
    kernels.grad_stats(gradients, optimizer.device_state());
    StepState found = optimizer.state();
    found.found_inf = found.nonfinite > 0;
    optimizer.set_state(found);
    if (found.found_inf) {  // counts against the scale even if the step is then left out
        ScaleState state = this->state();
        state.found_inf = 1;
        set_state(state);
    }
    kernels.scale_gradients(gradients, float(1.0 / get_scale()), 0.0f);
    stage = Stage::unscaled;
}

void GradScaler::step(Optimizer& optimizer, const ClipSpec& clip) {
    Stage& stage = stages_[&optimizer];
    if (!enabled()) {
        optimizer.step_scaled(nullptr, clip, {}, loss());
        stage = Stage::stepped;
        return;
    }
    check(stage != Stage::stepped, "step() was already called on this optimizer since the last update()");
    check(scaled_ || stage == Stage::unscaled,
          "step(): no loss was scaled since the last update(); run backward(scaler.scale(loss)) first");
    if (stage == Stage::unscaled) {
        optimizer.step_scaled(nullptr, clip, {}, loss());
        if (optimizer.state().skip) {
            ScaleState state = this->state();
            state.found_inf = 1;
            set_state(state);
        }
    } else {
        optimizer.step_scaled(device_state(), clip, {}, loss());
    }
    stage = Stage::stepped;
}

void GradScaler::update() {
    if (!enabled()) return forget_step();
    bool stepped = false;
    for (const auto& [optimizer, stage] : stages_) stepped = stepped || stage != Stage::ready;
    for (const auto& [optimizer, stage] : stages_) {
        if (stage != Stage::unscaled) continue;
        StepState left_out = optimizer->state();  // its step was left out; the next one starts clean
        left_out.found_inf = 0;
        optimizer->set_state(left_out);
    }
    check(stepped,
          "update(): no optimizer has stepped since the last update(), so there is nothing to judge the scale by");
    StepEnd end;
    end.scale = device_state();
    end.updates_scale = true;
    end.scaler = spec_;
    kernels_for(state_.device()).conclude(end, {});
    state_.bump_version();
    forget_step();
}

void GradScaler::backward(const Tensor& loss) {
    note_recorded(*this);
    if (!enabled() && !stages_.empty()) forget_step();  // it may be used without update()
    scaled_ = true;
    add_loss(loss, *loss_);
    invar::backward(loss, state_.window(0, loss.shape()));
}

void GradScaler::step_and_update(Optimizer& optimizer, const ClipSpec& clip, const ReportSlots& reports) {
    StepEnd end;
    end.reports = reports;
    if (!enabled()) {
        optimizer.step_scaled(nullptr, clip, end, loss());
        return forget_step();
    }
    check(stages_.empty(), "step_and_update() is for one optimizer by itself; here some were unscaled or have stepped");
    check(scaled_, "step_and_update(): no loss was scaled since the last update(); run backward(loss) of the scaler");
    end.updates_scale = true;
    end.scaler = spec_;
    optimizer.step_scaled(device_state(), clip, end, loss());
    state_.bump_version();
    forget_step();
}

void GradScaler::forget_step() {
    stages_.clear();
    scaled_ = false;
    *loss_ = {};
}

void GradScaler::set_scale(double scale) {
    check<UsageError>(can_be_scale(scale), "scaler: the scale {} is not a positive FP32 number", scale);
    ScaleState state = this->state();
    state.scale = float(scale);
    set_state(state);
}

ScaleState GradScaler::state() const {
    ScaleState state;
    kernels_for(state_.device()).download(&state, state_.raw(), sizeof state);
    return state;
}

void GradScaler::set_state(const ScaleState& state) {
    kernels_for(state_.device()).upload(state_.raw(), &state, sizeof state);
}

std::map<std::string, double> GradScaler::state_dict() const {
    if (!enabled()) return {};
    const ScaleState s = state();
    return {{"scale", s.scale},
            {"growth_factor", spec_.growth_factor},
            {"backoff_factor", spec_.backoff_factor},
            {"growth_interval", spec_.growth_interval},
            {"_growth_tracker", s.growth_tracker},
            {"hysteresis_left", s.hysteresis_left},
            {"growths", double(s.growths)},
            {"backoffs", double(s.backoffs)}};
}

void GradScaler::load_state_dict(const std::map<std::string, double>& saved) {
    if (!enabled()) return;
    const auto value = [&](const char* key, double otherwise) {
        const auto found = saved.find(key);
        return found == saved.end() ? otherwise : found->second;
    };
    for (const char* key : {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
        check(saved.contains(key), "the scaler's state lacks '{}'", key);
    const double interval = saved.at("growth_interval"), tracker = saved.at("_growth_tracker");
    check(can_be_scale(saved.at("scale")) && saved.at("growth_factor") > 1 && saved.at("backoff_factor") > 0 &&
              saved.at("backoff_factor") < 1 && interval >= 1 && interval <= 0x1p31 - 1 && tracker >= 0 &&
              tracker <= interval,
          "the scaler's state holds numbers that cannot be: scale {}, growth {}, backoff {}, interval {}, tracker {}",
          saved.at("scale"), saved.at("growth_factor"), saved.at("backoff_factor"), interval, tracker);
    spec_.growth_factor = saved.at("growth_factor");
    spec_.backoff_factor = saved.at("backoff_factor");
    spec_.growth_interval = int(saved.at("growth_interval"));
    ScaleState state;
    state.scale = float(saved.at("scale"));
    state.growth_tracker = int(saved.at("_growth_tracker"));
    state.hysteresis_left = int(value("hysteresis_left", spec_.hysteresis));
    state.growths = std::int64_t(value("growths", 0));
    state.backoffs = std::int64_t(value("backoffs", 0));
    set_state(state);
}

}  // namespace invar
