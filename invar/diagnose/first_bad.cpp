#include "invar/diagnose/first_bad.h"

#include <cstring>

#include "invar/amp/autocast.h"
#include "invar/formats/format_tally.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

bool floating(const Tensor& tensor) {
    return tensor && is_floating(tensor.dtype());
}

Tensor in_fp32(const Tensor& tensor) {
    Tensor wide = Tensor::empty(tensor.shape(), Dtype::f32, tensor.device());
    kernels_for(tensor.device()).copy(tensor.view(), wide.view());
    return wide;
}

void include(InFp32& total, const Tensor& tensor) {
    const Range range = range_of("", tensor);
    total.finite = total.finite && range.finite();
    total.largest = std::max(total.largest, range.largest);
}

}  // namespace

bool all_finite(const Tensor& tensor) {
    return !floating(tensor) || tensor.numel() == 0 || kernels_for(tensor.device()).all_finite(tensor.view());
}

void FirstBad::note(Direction towards, const std::string& path, const std::string& name, const Tensor& bad) {
    found = true;
    direction = towards;
    module = path, op = name;
    dtype = bad.dtype();
    result = range_of("result", bad);
}

void FirstBad::forward(const ForwardRun& run) {
    const std::size_t mine = next_++;
    if (run.result.node()) numbers_[run.result.node().get()] = mine;
    if (keep_ == mine) inputs = run.inputs, again = run.again;
    if (found || all_finite(run.result)) return;
    note(Direction::forward, run.module, run.op, run.result);
    number = mine;
}

void FirstBad::backward(const BackwardRun& run) {
    // Taken out: once it has run, its address may become another node's.
    const auto entry = numbers_.extract(&run.node);
    const std::optional<std::size_t> mine = entry ? std::optional(entry.mapped()) : std::nullopt;
    if (mine && keep_ == mine) {
        incoming = run.incoming;
        wanted.clear();
        for (const auto& input : run.node.inputs()) wanted.push_back(input != nullptr);
    }
    // Copied, since the next part may be added into the memory of the first.
    for (std::size_t i = 0; keep_ && i < run.outgoing.size() && i < run.node.inputs().size(); ++i)
        if (const auto reads = numbers_.find(run.node.inputs()[i].get());
            run.outgoing[i] && reads != numbers_.end() && reads->second == *keep_)
            parts.push_back(in_fp32(run.outgoing[i]));
    if (found) return;
    // What came in was made of finite parts: their sum is what overflowed.
    if (!all_finite(run.incoming)) {
        summed = mine;
        return note(Direction::backward, run.node.module(), kSumOfGradients, run.incoming);
    }
    for (std::size_t i = 0; i < run.node.inputs().size(); ++i) {
        const bool handed_on = i < run.outgoing.size() && run.outgoing[i];
        const Tensor gradient = handed_on ? run.outgoing[i] : weight_gradient(run.node, i);
        if (all_finite(gradient)) continue;
        note(Direction::backward, run.node.module(), run.node.name(), gradient);
        number = mine;
        return;
    }
}

InFp32 sum_in_fp32(const Tensors& parts) {
    InFp32 result{true, 0.0};
    if (parts.empty()) return {};
    const Tensor sum = in_fp32(parts.front());
    for (std::size_t i = 1; i < parts.size(); ++i) kernels_for(sum.device()).add_into(parts[i].view(), sum.view());
    include(result, sum);
    return result;
}

InFp32 run_in_fp32(const FirstBad& kept, const std::function<Tensor(const Tensor&)>& masters) {
    InFp32 result{true, 0.0};
    // A cast to FP32 is the value itself; running the op again would round as before.
    if (kept.op == "cast") {
        include(result, kept.direction == Direction::forward ? kept.inputs[0] : kept.incoming);
        return result;
    }
    const Autocast off(Autocast::off());
    Tensors inputs;
    for (const Tensor& input : kept.inputs) {
        const bool narrow = floating(input) && input.dtype() != Dtype::f64;
        inputs.push_back(narrow ? in_fp32(masters(input)) : input ? input.detach() : input);
    }
    if (kept.direction == Direction::forward) {
        const NoGrad no_grad;
        include(result, kept.again(inputs));
        return result;
    }
    for (std::size_t i = 0; i < inputs.size() && i < kept.wanted.size(); ++i)
        if (kept.wanted[i]) inputs[i].set_requires_grad();
    invar::backward(kept.again(inputs), in_fp32(kept.incoming));
    for (std::size_t i = 0; i < inputs.size() && i < kept.wanted.size(); ++i)
        if (kept.wanted[i] && inputs[i].grad()) include(result, inputs[i].grad());
    return result;
}

}  // namespace invar
