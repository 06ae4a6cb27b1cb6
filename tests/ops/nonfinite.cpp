#include "tests/ops/nonfinite.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/ops/ops.h"

namespace invar::testing {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// Places in one tensor that are tried; more would take long and show the same.
constexpr std::int64_t kPlaces = 5;

// How many faults of a case are named.
constexpr std::size_t kNamed = 8;

// What goes into a case: the values of its inputs, and last those of the gradient that comes in.
using Values = std::vector<std::vector<double>>;

// What comes out: the result, then each input's gradient, end to end. Empty where the op refused.
struct Outcome {
    std::vector<double> values;
    std::vector<std::size_t> begins;  // of each gradient; the result begins at 0

    std::string name(std::size_t at) const {
        std::size_t part = 0;
        while (part < begins.size() && begins[part] <= at) ++part;
        return part == 0 ? fmt::format("the result's element {}", at)
                         : fmt::format("the gradient of input {}, element {}", part - 1, at - begins[part - 1]);
    }
};

Outcome run(const OpCase& op_case, const Values& in, Dtype dtype, Device device) {
    const Device before = case_device();
    case_device() = device;
    Outcome outcome;
    try {
        Tensors leaves;
        for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
            leaves.push_back(ops::to(Tensor::from(in[i], op_case.inputs[i].shape, dtype), device));
            leaves.back().set_requires_grad(op_case.inputs[i].gradient);
        }
        const Tensor y = op_case.run(leaves);
        const std::vector<double> result = y.to_vector<double>();
        std::vector<double> gradient = in.back();
        gradient.resize(result.size());
        backward(y, ops::to(Tensor::from(gradient, y.shape(), y.dtype()), device));
        outcome.values = result;
        for (const Tensor& leaf : leaves) {
            outcome.begins.push_back(outcome.values.size());
            if (!leaf.grad()) continue;
            const std::vector<double> part = leaf.grad().to_vector<double>();
            outcome.values.insert(outcome.values.end(), part.begin(), part.end());
        }
    } catch (const Error&) {
        outcome = {};
    }
    case_device() = before;
    return outcome;
}

bool same(double a, double b) {
    return a == b || (a != a && b != b);
}

// One element of what goes into a case, and what its value is to the case in f64 on the CPU.
class Probe {
  public:
    Probe(const OpCase& op_case, Values in, std::size_t tensor, std::size_t element)
        : op_case_(op_case), in_(std::move(in)), tensor_(tensor), element_(element), kept_(in_[tensor][element]) {}

    Outcome with(double value, Dtype dtype, Device device) {
        in_[tensor_][element_] = value;
        Outcome outcome = run(op_case_, in_, dtype, device);
        in_[tensor_][element_] = kept_;
        return outcome;
    }
    // Which parts of the outcome change with it.
    std::vector<bool> dependents() {
        const Outcome now = exact(kept_);
        std::vector<bool> changed(now.values.size(), false);
        for (const double value : {1.01 * kept_ + 0.01, -1e3, 1e3}) {
            const Outcome other = exact(value);
            for (std::size_t i = 0; i < changed.size() && !other.values.empty(); ++i)
                changed[i] = changed[i] || !same(now.values[i], other.values[i]);
        }
        return changed;
    }
    // What the outcome tends to as the element goes to plus or minus infinity; not finite where it grows without end.
    std::vector<double> limit(double sign) {
        const Outcome large = exact(sign * 1e50), larger = exact(sign * 1e100);
        std::vector<double> limit = larger.values;
        for (std::size_t i = 0; i < limit.size() && !large.values.empty(); ++i) {
            const double first = large.values[i], second = limit[i];
            if (std::fabs(second - first) <= 1e-6 * (1 + std::fabs(second))) continue;
            limit[i] = std::fabs(second) < 0.99 * std::fabs(first) ? 0 : kNan;  // a small negative power of the element
        }
        return limit;
    }
    std::string name(double value) const {
        const bool gradient = tensor_ + 1 == in_.size();
        return fmt::format("{} in {} {} of {}", value, gradient ? "the incoming gradient's element" : "element",
                           element_, gradient ? "it" : fmt::format("input {}", tensor_));
    }

  private:
    Outcome exact(double value) { return with(value, Dtype::f64, Device::cpu()); }
    const OpCase& op_case_;
    Values in_;
    std::size_t tensor_, element_;
    double kept_;
};

const Exception* exception_for(const OpCase& op_case) {
    for (const Exception& exception : exceptions())
        if (op_case.name.starts_with(exception.cases)) return &exception;
    return nullptr;
}

// Random values that every format holds: where two are equal after rounding, another one wins.
std::vector<double> held_values(std::int64_t count, double low, double high, std::uint64_t seed) {
    return Tensor::from(random_values(count, low, high, seed), {count}, Dtype::bf16).to_vector<double>();
}

}  // namespace

std::pair<std::int64_t, std::int64_t> nan_through_dropout(std::int64_t count, double p, Dtype dtype, Device device) {
    const Tensor nan = ops::full({count}, std::numeric_limits<double>::quiet_NaN(), dtype, device);
    const auto count_nan = [](const Tensor& t) {
        std::int64_t found = 0;
        for (const double value : t.to_vector<double>()) found += std::isnan(value);
        return found;
    };
    Tensor x = ops::full({count}, 1.0, dtype, device);
    x.set_requires_grad();
    const Tensor y = ops::dropout(x, p, true);
    backward(y, nan);
    return {count_nan(ops::dropout(nan, p, true)), count_nan(x.grad())};
}

const std::vector<Exception>& exceptions() {
    static const std::vector<Exception> all{
        {"relu/", Exception::gate, "stops the gradient only where its result is known to be zero, as PyTorch does"},
        {"leaky_relu/", Exception::gate, "passes the gradient on where its input is NaN, as relu"},
        {"elu/", Exception::gate, "passes the gradient on where its input is NaN, as relu"},
        {"hardsigmoid/", Exception::gate, "passes the gradient on where its input is NaN, as relu"},
        {"linear/relu", Exception::gate, "as relu"},
        {"conv2d/relu", Exception::gate, "as relu"},
        {"batch_norm/relu", Exception::gate, "as relu"},
        {"batch_norm/sum and relu", Exception::gate, "as relu"},
        {"clamp/", Exception::gate, "stops the gradient only where its input is known to be out of bounds"},
        {"maximum/", Exception::gate, "both operands get the gradient, as in PyTorch"},
        {"minimum/", Exception::gate, "both operands get the gradient, as in PyTorch"},
        {"max/", Exception::one_winner, "NaN counts as the largest, which gets the gradient, as in PyTorch"},
        {"min/", Exception::one_winner, "NaN counts as the smallest too, which gets the gradient, as in PyTorch"},
        {"sort/", Exception::order, "NaN counts as the largest and takes that place; the others keep their values"},
        {"topk/", Exception::order, "NaN counts as the largest and takes that place; the others keep their values"},
        {"max_pool2d/", Exception::one_winner, "NaN counts as the largest, which gets the gradient, as in PyTorch"},
        {"attention/wide", Exception::result_shows,
         "cuDNN's backward leaves some gradients of a row finite whose result is not"},
        {"pow/", Exception::power, "IEEE's pow(-Inf, y) is the limit over whole numbers, 0 for y < 0"},
    };
    return all;
}

std::vector<std::string> hidden_by(const OpCase& op_case, Dtype dtype, Device device) {
    Values in;
    std::uint64_t seed = 11;
    for (const CaseInput& input : op_case.inputs)
        in.push_back(held_values(input.shape.numel(), input.low, input.high, ++seed));
    in.push_back({});
    const Outcome plain = run(op_case, in, Dtype::f64, Device::cpu());
    const std::size_t results = plain.begins.at(0);
    in.back() = held_values(std::int64_t(results), 0.5, 1.5, 99);
    const Exception* const exception = exception_for(op_case);
    const auto is = [&](Exception::Kind kind) { return exception != nullptr && exception->kind == kind; };

    std::vector<std::string> hidden;
    for (std::size_t tensor = 0; tensor < in.size(); ++tensor) {
        const bool incoming = tensor + 1 == in.size();
        const std::int64_t count = std::int64_t(in[tensor].size()), places = std::min(count, kPlaces);
        for (std::int64_t place = 0; place < places; ++place) {
            const std::size_t element = std::size_t(place * count / places);
            Probe probe(op_case, in, tensor, element);
            const auto check = [&](double value, const auto& shows) {
                const Outcome got = probe.with(value, dtype, device);
                for (std::size_t i = 0; i < got.values.size(); ++i)
                    if (std::isfinite(got.values[i]) && !shows(i, got.values[i]) && hidden.size() < kNamed)
                        hidden.push_back(fmt::format("{}: {} gives {} in {}", op_case.name, probe.name(value),
                                                     got.values[i], got.name(i)));
            };
            const std::vector<bool> dependents = probe.dependents();
            const bool arrives = std::find(dependents.begin(), dependents.begin() + std::ptrdiff_t(results), true) !=
                                 dependents.begin() + std::ptrdiff_t(results);
            check(kNan, [&](std::size_t i, double got) {
                if (!incoming && is(Exception::order)) return true;
                if (incoming || i < results || !(is(Exception::gate) || is(Exception::one_winner)))
                    return !dependents[i];
                const bool own = i == plain.begins[tensor] + element;
                return got != 0 || (is(Exception::gate) ? !dependents[i] : !(own && arrives));
            });
            for (const double sign : {1.0, -1.0}) {
                const std::vector<double> limit = probe.limit(sign);
                const auto shown = [&] {
                    const Outcome got = probe.with(sign * kInf, dtype, device);
                    return std::any_of(got.values.begin(), got.values.begin() + std::ptrdiff_t(results),
                                       [](double value) { return !std::isfinite(value); });
                };
                const bool excused = is(Exception::result_shows) && !incoming && shown();
                check(sign * kInf, [&](std::size_t i, double got) {
                    if (excused && i >= results) return true;
                    // Where an infinity times a padding's zero made NaN of the result.
                    if (is(Exception::gate) && i >= results && got != 0) return true;
                    // A coarse tolerance: it is not accuracy that is tested here.
                    return limit.empty() || (is(Exception::power) && sign < 0) ||
                           std::fabs(got - limit[i]) <= 0.02 * (1 + std::fabs(limit[i]));
                });
            }
        }
    }
    return hidden;
}

}  // namespace invar::testing
