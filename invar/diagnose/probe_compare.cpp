#include "invar/diagnose/probe_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/core/printable.h"

namespace invar {

namespace {

// A module may differ by so many units in the last place of the lower format. Sums in FP32 are ordered differently by
// every library, which costs more units than a rounding.
constexpr double kUnits = 4.0, kUnitsOfFp32 = 64.0;
constexpr double kOtherWeights = 0.25;  // weights that differ by so much are those of two models

double rounding_in(Dtype format) {
    return (size_of(format) >= 4 ? kUnitsOfFp32 : kUnits) * format_info(format).epsilon;
}

Dtype fewer_digits(Dtype a, Dtype b) {
    return format_info(a).epsilon >= format_info(b).epsilon ? a : b;
}

Dtype lowest_of(const ProbeStep& step) {
    Dtype lowest = step.autocast.value_or(Dtype::f32);
    for (const ProbeTensor& t : step.tensors)
        if (t.kind == ProbeKind::output && t.dtype != Dtype::f64) lowest = fewer_digits(lowest, t.dtype);
    return lowest;
}

bool is_random(const std::string& class_name) {
    return class_name.find("Dropout") != class_name.npos || class_name.find("DropPath") != class_name.npos;
}

// Whether a small difference decides which gradients pass.
bool is_gate(const std::string& class_name) {
    return class_name.find("ReLU") != class_name.npos || class_name.find("MaxPool") != class_name.npos ||
           class_name.starts_with("Hard");
}

bool decides_by_sign(const std::string& class_name) {
    return class_name.find("ReLU") != class_name.npos;
}

// Of gates that differ forward by so much, the share of gradients that are lost. A value within that distance of zero
// may change its sign. In a window it may cease to be the largest one, whose lead over the next is of the size of the
// values: the difference of two of them decides, and the gradient is lost in one place and found in another.
double lost_at_gate(const std::string& class_name, double difference) {
    constexpr double kOfWindow = 4.0;
    return class_name.find("MaxPool") != class_name.npos ? kOfWindow * difference : difference;
}

// ||a - b||^2 and the larger of ||a||^2 and ||b||^2, over what is finite.
struct Apart {
    double difference = 0.0, size_a = 0.0, size_b = 0.0;
    void add(const ProbeTensor& a, const ProbeTensor& b, double scale_a = 1.0, double scale_b = 1.0) {
        for (std::size_t i = 0; i < std::min(a.sample.size(), b.sample.size()); ++i) {
            const double x = double(a.sample[i]) / scale_a, y = double(b.sample[i]) / scale_b;
            if (!std::isfinite(x) || !std::isfinite(y)) continue;
            difference += (x - y) * (x - y), size_a += x * x, size_b += y * y;
        }
    }
    double share() const { return difference > 0 ? std::sqrt(difference / std::max(size_a, size_b)) : 0.0; }
};

// A share of the gradients is lost, each with its square. What the sample has of that varies from one to the next by
// the root of share * sum g^4 / (sum g^2)^2, of which three are allowed; unless it most likely has none of them.
double in_sample(double share, const ProbeTensor& gradient) {
    constexpr double kDeviations = 3.0, kNone = 0.01;
    double squares = 0.0, fourth = 0.0;
    for (const float value : gradient.sample)
        if (const double square = double(value) * double(value); std::isfinite(square))
            squares += square, fourth += square * square;
    const double of_one = squares > 0 ? fourth / (squares * squares) : 0.0;  // what one of them weighs
    return share > kNone * of_one ? share + kDeviations * std::sqrt(share * of_one) : share;
}

class StepComparison {
  public:
    StepComparison(const ProbeStep& a, const ProbeStep& b, Dtype lower);
    std::optional<ProbeParting> run(ProbeComparison& result);
    // Where the weights that the step began with differ by more than rounding.
    std::optional<ProbeParting> weights_apart() const;
    bool other_weights() const { return weights_.share() > kOtherWeights; }

  private:
    double difference(const ProbeTensor& in_a, const ProbeTensor& in_b) const {
        const bool scaled = in_a.kind == ProbeKind::output_grad;
        Apart apart;
        apart.add(in_a, in_b, scaled ? a_.scale : 1.0, scaled ? b_.scale : 1.0);
        return apart.share();
    }
    double inputs_of(const std::string& module) const;
    double drift_of(const std::string& module) const;  // what its weights explain
    double allowed(const ProbeTensor& t) const;
    const ProbeTensor* result_of(const ProbeStep& step, const ProbeTensor& gradient) const;
    double seen_lost(const ProbeTensor& gradient) const;
    void pass(const ProbeTensor& t, double difference);
    std::string other_calls(const ProbeTensor& in_a, const ProbeTensor& in_b) const;
    ProbeParting parting(const ProbeTensor& t, ProbeParting::Why why, double difference, double allowed) const;

    const ProbeStep& a_;
    const ProbeStep& b_;
    Dtype lower_;
    std::map<std::string, Apart> weights_of_;  // by module
    Apart weights_;
    double walked_ = 0.0;                     // squares of what the modules so far were allowed
    double at_gates_ = 0.0;                   // what these may lose, by their differences forward
    std::map<std::string, double> may_lose_;  // of that, by module
    double most_ = 0.0;                       // the largest difference, forward
};

StepComparison::StepComparison(const ProbeStep& a, const ProbeStep& b, Dtype lower) : a_(a), b_(b), lower_(lower) {
    for (const ProbeTensor& weight : a_.tensors) {
        const ProbeTensor* const other = weight.kind == ProbeKind::weight ? b_.find(weight) : nullptr;
        if (other == nullptr || other->shape != weight.shape) continue;
        weights_of_[weight.module].add(weight, *other);
        weights_.add(weight, *other);
    }
}

double StepComparison::drift_of(const std::string& module) const {
    constexpr double kAmplified = 2.0;  // sums cancel, and errors do not
    const auto weights = weights_of_.find(module);
    return weights != weights_of_.end() ? kAmplified * weights->second.share() : 0.0;
}

// Errors of the modules on the way add up as a random walk does, and so does what their weights differ by. Where a gate
// decides otherwise in one of the two, a gradient is lost whole: a share of them, of which the root is the error.
double StepComparison::allowed(const ProbeTensor& t) const {
    const double own = rounding_in(lower_);
    const double drift = drift_of(t.module);
    const double gates = t.kind == ProbeKind::output_grad ? in_sample(std::max(at_gates_, most_), t) : 0.0;
    return std::sqrt(walked_ + own * own + drift * drift + gates);
}

void StepComparison::pass(const ProbeTensor& t, double difference) {
    const double own = rounding_in(lower_);
    const double drift = drift_of(t.module);
    walked_ += own * own + drift * drift;
    if (t.kind == ProbeKind::output_grad && decides_by_sign(t.class_name))
        at_gates_ += std::max(0.0, seen_lost(t) - may_lose_[t.module]);
    if (t.kind != ProbeKind::output) return;
    most_ = std::max(most_, difference);
    if (is_gate(t.class_name)) at_gates_ += may_lose_[t.module] = lost_at_gate(t.class_name, difference);
}

const ProbeTensor* StepComparison::result_of(const ProbeStep& step, const ProbeTensor& gradient) const {
    for (const ProbeTensor& t : step.tensors)
        if (t.kind == ProbeKind::output && t.module == gradient.module && t.index == gradient.index) return &t;
    return nullptr;
}

// The share of the gradients that pass a gate at places where its results have another sign in the other probe: few, of
// which one may weigh much.
double StepComparison::seen_lost(const ProbeTensor& gradient) const {
    const ProbeTensor *const in_a = result_of(a_, gradient), *const in_b = result_of(b_, gradient);
    const std::size_t size = gradient.sample.size();
    if (in_a == nullptr || in_b == nullptr || in_a->shape != gradient.shape || in_b->shape != gradient.shape ||
        in_a->sample.size() != size || in_b->sample.size() != size)
        return 0.0;
    double whole = 0.0, lost = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
        const double square = double(gradient.sample[i]) * double(gradient.sample[i]);
        if (!std::isfinite(square)) continue;
        const bool passes_in_a = in_a->sample[i] > 0, passes_in_b = in_b->sample[i] > 0;
        if (passes_in_a || passes_in_b) whole += square;
        if (passes_in_a != passes_in_b) lost += square;
    }
    return lost > 0 ? lost / whole : 0.0;
}

double StepComparison::inputs_of(const std::string& module) const {
    double most = 0.0;
    for (const ProbeTensor& t : a_.tensors)
        if (t.kind == ProbeKind::input && t.module == module)
            if (const ProbeTensor* const other = b_.find(t)) most = std::max(most, difference(t, *other));
    return most;
}

std::string StepComparison::other_calls(const ProbeTensor& in_a, const ProbeTensor& in_b) const {
    return fmt::format("step {}: {} ran {} times in a and {} in b, and the step is compared up to there", a_.step,
                       printable(in_a.module), in_a.calls, in_b.calls);
}

ProbeParting StepComparison::parting(const ProbeTensor& t, ProbeParting::Why why, double difference,
                                     double allowed) const {
    ProbeParting p;
    p.why = why, p.step = a_.step, p.module = t.module, p.class_name = p.class_in_b = t.class_name;
    p.direction = t.kind == ProbeKind::output_grad ? Direction::backward : Direction::forward;
    p.difference = difference, p.allowed = allowed;
    p.inputs = inputs_of(t.module);
    return p;
}

std::optional<ProbeParting> StepComparison::weights_apart() const {
    for (const ProbeTensor& t : a_.tensors) {
        const auto found = t.kind == ProbeKind::weight ? weights_of_.find(t.module) : weights_of_.end();
        if (found == weights_of_.end() || found->second.share() <= rounding_in(lower_)) continue;
        return parting(t, ProbeParting::Why::weights, found->second.share(), rounding_in(lower_));
    }
    return {};
}

std::optional<ProbeParting> StepComparison::run(ProbeComparison& result) {
    using Why = ProbeParting::Why;
    result.rows.clear();
    std::optional<ProbeParting> first;
    for (const ProbeTensor& t : a_.tensors) {
        if (t.kind == ProbeKind::weight || t.kind == ProbeKind::weight_grad) continue;
        const bool of_model = t.module.empty();
        if (of_model && t.kind != ProbeKind::input) continue;
        const ProbeTensor* const other = b_.find(t);
        if (other == nullptr) continue;
        if (t.calls != other->calls && size_of(lower_) < 4) {  // FP32 decides alike
            result.other_calls.push_back(other_calls(t, *other));
            break;
        }
        const double apart = difference(t, *other), most = of_model ? rounding_in(lower_) : allowed(t);
        const bool shape = t.shape != other->shape, finite = t.finite() == other->finite();
        const bool parts = shape || !finite || apart > most;
        const auto why = [&] {
            if (shape) return Why::shape;
            if (!finite) return Why::not_finite;
            if (of_model) return Why::data;
            if (t.kind == ProbeKind::input) return Why::between_modules;
            return is_random(t.class_name) ? Why::random : Why::rounding;
        };
        if (parts && !first) first = parting(t, why(), apart, most), first->class_in_b = other->class_name;
        if (t.kind == ProbeKind::input) continue;
        result.rows.push_back({t.module, t.class_name,
                               t.kind == ProbeKind::output_grad ? Direction::backward : Direction::forward, t.dtype,
                               other->dtype, apart, most, parts});
        pass(t, apart);
    }
    return first;
}

// A step that one of them skipped is an update that its weights lack, and says nothing of any module.
void explain_by_skips(ProbeParting& parting, const ProbeStep& a, const ProbeStep& b) {
    using Why = ProbeParting::Why;
    parting.skips_in_a = a.skips, parting.skips_in_b = b.skips;
    const bool of_values = parting.why == Why::rounding || parting.why == Why::between_modules;
    if (a.skips != b.skips && of_values) parting.why = Why::skips;
}

}  // namespace

ProbeComparison compare_probes(const Probe& a, const Probe& b) {
    ProbeComparison result;
    result.title_a = a.title(), result.title_b = b.title();
    result.on_cuda = a.device.starts_with("cuda") || b.device.starts_with("cuda");
    std::set<std::string> in_a, in_b;
    for (const auto& [name, class_name] : a.modules) in_a.insert(name);
    for (const auto& [name, class_name] : b.modules) in_b.insert(name);
    for (const std::string& name : in_a)
        if (!in_b.contains(name)) result.only_in_one.push_back(fmt::format("{}: {}", a.folder.string(), name));
    for (const std::string& name : in_b)
        if (!in_a.contains(name)) result.only_in_one.push_back(fmt::format("{}: {}", b.folder.string(), name));
    for (const ProbeLine& line : a.lines) {
        const auto same = [&](const ProbeLine& other) { return other.step == line.step; };
        const auto other = std::find_if(b.lines.begin(), b.lines.end(), same);
        if (other == b.lines.end()) continue;
        const ProbeStep step_a = a.load(line), step_b = b.load(*other);
        result.lower = fewer_digits(lowest_of(step_a), lowest_of(step_b));
        StepComparison step(step_a, step_b, result.lower);
        const std::optional<ProbeParting> weights = result.steps.empty() ? step.weights_apart() : std::nullopt;
        if (!weights && step.other_weights()) {
            result.other_weights_from = line.step;
            break;
        }
        result.steps.push_back(line.step);
        result.parting = step.run(result);
        // In the first step that both have, nothing but the weights is to blame where these differ.
        if (weights && (!result.parting || result.parting->why != ProbeParting::Why::data)) result.parting = weights;
        if (result.parting) explain_by_skips(*result.parting, step_a, step_b);
        check<UsageError>(!result.rows.empty() || !result.other_calls.empty(),
                          "{} and {} have no module in common in step {}: probe one model twice", a.folder.string(),
                          b.folder.string(), line.step);
        if (result.parting) break;
    }
    check<UsageError>(!result.steps.empty(),
                      "{} and {} have no step in common; probe both with the same `every` or `steps`",
                      a.folder.string(), b.folder.string());
    return result;
}

}  // namespace invar
