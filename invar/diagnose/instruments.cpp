#include "invar/diagnose/instruments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "invar/kernels/kernels.h"

namespace invar {

namespace {

bool is_low(const Tensor& tensor) {
    return tensor && is_floating(tensor.dtype()) && tensor.dtype() != Dtype::f32 && tensor.dtype() != Dtype::f64;
}

bool is_cast(const char* name) {
    return std::strcmp(name, "cast") == 0;
}

// Parameters are not what passes through.
bool is_weight(const Tensor& tensor) {
    return tensor.requires_grad() && tensor.is_leaf();
}

Tensor dense_on_host(const Tensor& tensor) {
    const Tensor host = tensor.on_host();
    if (host.is_contiguous()) return host;
    const Tensor dense = Tensor::empty_like(host);
    kernels_for(dense.device()).copy(host.view(), dense.view());
    return dense;
}

}  // namespace

void Passage::add_low(const PassedTensor& tensor) {
    low.add(tensor.tally);
    const auto same = [&](const PassedTensor& other) { return other.op == tensor.op && other.what == tensor.what; };
    if (const auto known = std::ranges::find_if(tensors, same); known != tensors.end())
        known->tally.add(tensor.tally);
    else
        tensors.push_back(tensor);
}

void Passage::add(const Passage& other) {
    all.add(other.all);
    for (const PassedTensor& tensor : other.tensors) add_low(tensor);
}

void FormatMap::forward(const ForwardRun& run) {
    if (is_cast(run.op)) return;
    if (run.result.node()) numbers_[run.result.node().get()] = ops.size();
    Op op{run.module, run.op, is_low(run.result), {}, false, {}};
    for (const Tensor& input : run.inputs) op.inputs.push_back(is_low(input));
    ops.push_back(std::move(op));
}

void FormatMap::backward(const BackwardRun& run) {
    const auto entry = numbers_.extract(&run.node);
    if (!entry) return;
    Op& op = ops[entry.mapped()];
    op.incoming = is_low(run.incoming);
    for (const Tensor& gradient : run.outgoing) op.outgoing.push_back(is_low(gradient));
}

LayerPassages& Instruments::layer(const std::string& module) {
    const auto same = [&](const LayerPassages& layer) { return layer.module == module; };
    const auto known = std::find_if(layers.begin(), layers.end(), same);
    return known != layers.end() ? *known : layers.emplace_back(LayerPassages{module, Passage(), Passage(), false});
}

void Instruments::tally(const Tensor& tensor, bool low, std::size_t op, const std::string& what,
                        Passage& passage) const {
    if (!tensor || !is_floating(tensor.dtype()) || tensor.numel() == 0) return;
    const Tensor host = dense_on_host(tensor);
    Tally tally(1);
    tally_values(host.dtype(), host.raw(), std::size_t(host.numel()), std::span(&format_, 1), tally);
    passage.all.add(tally);
    if (low) passage.add_low({op, what, tally});
}

const FormatMap::Op* Instruments::op(std::size_t number, const std::string& module, const char* name) const {
    if (number >= map_.ops.size()) return nullptr;
    const FormatMap::Op& op = map_.ops[number];
    return op.module == module && op.name == name ? &op : nullptr;
}

void Instruments::forward(const ForwardRun& run) {
    if (is_cast(run.op)) return;
    const std::size_t mine = next_++;
    if (run.result.node()) numbers_[run.result.node().get()] = mine;
    const FormatMap::Op* known = op(mine, run.module, run.op);
    Passage& passage = layer(run.module).forward;
    for (std::size_t i = 0; i < run.inputs.size(); ++i)
        if (known != nullptr && i < known->inputs.size() && known->inputs[i] && !is_weight(run.inputs[i]))
            tally(run.inputs[i], true, mine, fmt::format("input {} of {}", i, run.op), passage);
    tally(run.result, known != nullptr && known->result, mine, fmt::format("the result of {}", run.op), passage);
}

void Instruments::backward(const BackwardRun& run) {
    const auto entry = numbers_.extract(&run.node);
    if (!entry) return;
    const FormatMap::Op* known = op(entry.mapped(), run.node.module(), run.node.name());
    LayerPassages& mine = layer(run.node.module());
    mine.ran_backward = true;
    const std::size_t number = entry.mapped();
    const char* const name = run.node.name();
    if (known != nullptr && known->incoming)
        tally(run.incoming, true, number, fmt::format("the gradient of what {} made", name), mine.backward);
    for (std::size_t i = 0; i < run.outgoing.size(); ++i)
        tally(run.outgoing[i], known != nullptr && i < known->outgoing.size() && known->outgoing[i], number,
              fmt::format("the gradient of input {} of {}", i, name), mine.backward);
}

}  // namespace invar
