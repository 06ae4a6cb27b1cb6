#include "invar/diagnose/significance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "invar/kernels/kernels.h"

namespace invar {

namespace {

constexpr std::int64_t kSample = 4096;
constexpr double kNegligible = 1e-3;  // of the largest gradient: what is less moves nothing

std::vector<float> sample_of(const Tensor& tensor) {
    if (!tensor || !is_floating(tensor.dtype()) || tensor.numel() == 0) return {};
    const Tensor host = tensor.on_host();
    const Tensor wide = Tensor::empty(host.shape(), Dtype::f32);
    kernels_for(wide.device()).copy(host.view(), wide.view());
    const std::int64_t apart = std::max<std::int64_t>(1, wide.numel() / kSample);
    std::vector<float> sample;
    for (std::int64_t i = 0; i < wide.numel(); i += apart) sample.push_back(wide.data<float>()[i]);
    return sample;
}

struct Products {
    double low = 0.0, full = 0.0, both = 0.0, difference = 0.0;
};
Products products_of(const std::vector<float>& low, const std::vector<float>& full) {
    Products p;
    for (std::size_t i = 0; i < full.size(); ++i) {
        const double a = low[i], b = full[i];
        p.low += a * a, p.full += b * b, p.both += a * b, p.difference += (a - b) * (a - b);
    }
    return p;
}

double off(const std::vector<float>& low, const std::vector<float>& full) {
    if (low.size() != full.size()) return 0.0;
    const Products p = products_of(low, full);
    return p.full > 0 ? std::sqrt(p.difference / p.full) : 0.0;
}

Significance& of_module(std::vector<Significance>& all, const std::string& module) {
    const auto known = std::ranges::find(all, module, &Significance::module);
    if (known != all.end()) return *known;
    all.push_back({});
    all.back().module = module;
    return all.back();
}

}  // namespace

void SampledOps::forward(const ForwardRun& run) {
    if (std::strcmp(run.op, "cast") == 0) return;
    Op op{run.module, run.op, {}, sample_of(run.result)};
    for (const Tensor& input : run.inputs) op.inputs.push_back(sample_of(input));
    ops.push_back(std::move(op));
}

void SampledStep::sample_gradients(const Optimizer& optimizer) {
    const ParameterStore& store = optimizer.store();
    gradients.clear();
    for (const Segment& place : store.places())
        gradients.push_back(sample_of(store.gradients().window(place.begin, {place.count})));
}

void compare_steps(const SampledStep& low, const SampledStep& full, const Optimizer& optimizer,
                   std::vector<Significance>& significance) {
    const std::size_t count = std::min(low.ops.ops.size(), full.ops.ops.size());
    for (std::size_t i = 0; i < count; ++i) {
        const SampledOps::Op &a = low.ops.ops[i], &b = full.ops.ops[i];
        if (a.module != b.module || a.name != b.name) break;  // the two do not run the same ops any more
        Significance& s = of_module(significance, a.module);
        double given = 0.0;
        for (std::size_t k = 0; k < std::min(a.inputs.size(), b.inputs.size()); ++k)
            given = std::max(given, off(a.inputs[k], b.inputs[k]));
        const auto finite = [](const std::vector<float>& v) {
            return std::ranges::all_of(v, [](float x) { return std::isfinite(x); });
        };
        if (!finite(a.result)) {
            if (!s.infinite_op.empty() || !std::ranges::all_of(a.inputs, finite) || !finite(b.result)) continue;
            s.infinite_op = a.name;
            for (const float x : b.result) s.in_full = std::max(s.in_full, double(std::fabs(x)));
            continue;
        }
        const double made = off(a.result, b.result);
        s.off = std::max(s.off, made);
        // A gate, such as ReLU, makes nothing: where little is left of what it is given, that is off as before.
        const auto passes_on = [](const SampledOps::Op& op) {
            if (op.inputs.empty() || op.inputs[0].size() != op.result.size()) return false;
            for (std::size_t k = 0; k < op.result.size(); ++k)
                if (op.result[k] != 0 && op.result[k] != op.inputs[0][k]) return false;
            return true;
        };
        if (made - given > s.made - s.given && !passes_on(a)) s.op = a.name, s.given = given, s.made = made;
    }
    const std::vector<Parameter*>& parameters = optimizer.store().parameters();
    double largest = 0.0;
    for (const std::vector<float>& gradient : full.gradients)
        largest = std::max(largest, products_of(gradient, gradient).full);
    for (std::size_t i = 0; i < std::min({parameters.size(), low.gradients.size(), full.gradients.size()}); ++i) {
        if (low.gradients[i].size() != full.gradients[i].size()) continue;
        const Products p = products_of(low.gradients[i], full.gradients[i]);
        if (p.full <= kNegligible * kNegligible * largest) continue;
        const double cosine = p.low > 0 ? p.both / std::sqrt(p.low * p.full) : 0.0;
        Significance& s = of_module(significance, module_of(parameters[i]->name));
        s.cosine = std::min(s.cosine, cosine);
    }
}

}  // namespace invar
