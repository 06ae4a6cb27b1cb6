#include "invar/ops/apply.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "invar/amp/autocast.h"
#include "invar/autograd/op_timer.h"
#include "invar/core/arrivals.h"
#include "invar/core/error.h"
#include "invar/ops/cast.h"
#include "invar/ops/shape_tools.h"

namespace invar {

namespace {

std::vector<OpEntry>& entries() {
    static std::vector<OpEntry> all;
    return all;
}

std::int64_t& applied_count() {
    thread_local std::int64_t count = 0;
    return count;
}

// A leaf that keeps a low-precision copy of itself is not cast: the copy is used, and its gradient goes to the leaf.
bool has_current_shadow(const Tensor& input, Dtype target) {
    return input.is_leaf() && input.shadow() && input.shadow().dtype() == target;
}

}  // namespace

std::shared_ptr<Node> Context::maker_of(std::size_t i) const {
    if (!LightRecompute::on() || inputs_ == nullptr || i >= node_->inputs().size()) return nullptr;
    const Tensor& input = (*inputs_)[i];
    const std::shared_ptr<Node>& maker = node_->inputs()[i];
    return input && maker && input.is_contiguous() && maker->can_recompute() ? maker : nullptr;
}

bool Context::saves_for_nothing(std::size_t i) const {
    return node_ != nullptr && LightRecompute::on() &&
           (maker_of(i) != nullptr || dynamic_cast<const Accumulator*>(node_->inputs()[i].get()) != nullptr);
}

// What is saved may be another view of an input.
void Context::save(const Tensor& tensor) {
    if (node_ == nullptr) return;
    for (std::size_t i = 0; LightRecompute::on() && tensor && inputs_ != nullptr && i < inputs_->size(); ++i) {
        const Tensor& input = (*inputs_)[i];
        if (!input || input.storage() != tensor.storage()) continue;
        if (std::shared_ptr<Node> maker = maker_of(i)) {
            saved_.emplace_back(tensor, input, std::move(maker));
            return;
        }
    }
    saved_.emplace_back(tensor);
}

Tensor Context::saved(std::size_t i) const {
    return saved_.at(i).unpack(*node_);
}

Tensor Context::saved(std::size_t i, const Tensor& gradient) const {
    return saved_.at(i).unpack(*node_, gradient);
}

void Context::release() {
    saved_.clear();
    released_ = true;
}

bool Context::is_weight(std::size_t i) const {
    const auto leaf = [](const Node* node) { return dynamic_cast<const Accumulator*>(node) != nullptr; };
    const Node* node = node_->inputs()[i].get();
    return leaf(node) || (std::strcmp(node->name(), "cast") == 0 && leaf(node->inputs()[0].get()));
}

Context::Slot Context::slot(std::size_t i, const Shape& shape, Dtype dtype, Device device) const {
    const auto* accumulator = dynamic_cast<const Accumulator*>(node_->inputs()[i].get());
    if (accumulator != nullptr) {
        const Tensor leaf = accumulator->leaf();
        const bool first = leaf.grad_forgotten();
        const Tensor grad = first ? leaf.grad_to_overwrite() : leaf.grad();
        if (grad && grad.dtype() == dtype && grad.shape() == shape && grad.is_contiguous()) return {grad, !first, true};
        if (first) leaf.forget_grad();
    }
    return {Tensor::empty(shape, dtype, device), false, false};
}

Tensor Context::take_pending(std::size_t i, const Shape& shape, Dtype dtype) const {
    return needs(i) ? take_pending_gradient(*node_->inputs()[i], shape, dtype) : Tensor{};
}

std::int64_t ops_applied() {
    return applied_count();
}

void check_not_released(const Node& node, bool released) {
    if (released)
        fail(
            "{}: backward ran through this operation before, and what it saved is gone; pass keep_graph to the first "
            "one",
            node.where());
}

Tensor check_gradient(const Node& node, bool released, const Tensor& gradient, const Shape& shape, Dtype dtype) {
    check_not_released(node, released);
    if (gradient.shape() != shape)
        fail("{}: a gradient of shape {} for a result of shape {}", node.where(), gradient.shape().str(), shape.str());
    return gradient.dtype() == dtype ? gradient : ops::converted_to(gradient, dtype);
}

Prepared prepare(const char* name, CastClass cast, bool widens_itself, const Tensors& inputs) {
    const CastPolicy& policy = Autocast::current();
    check<UsageError>(
        cast != CastClass::refuse || policy.mode != CastPolicy::Mode::low,
        "{} is unsafe under autocast: its gradient does not fit in 16 bits; use {}_with_logits on the values before "
        "the sigmoid, or pin the region to FP32",
        name, name);
    Prepared prepared;
    std::optional<Dtype> target;
    if (widens_itself)
        prepared.result = result_target(policy, cast, inputs);
    else
        target = cast_target(policy, cast, inputs);
    prepared.inputs.reserve(inputs.size());
    prepared.edges.reserve(inputs.size());
    const Tensor* first = nullptr;
    for (const Tensor& input : inputs) {
        if (input && first == nullptr) first = &input;
        if (input && input.device() != first->device())
            fail("{}: inputs on {} and {}; move them to one device", name, first->device().str(), input.device().str());
        const bool casts =
            target && input && is_floating(input.dtype()) && input.dtype() != *target && input.dtype() != Dtype::f64;
        if (!casts) {
            prepared.inputs.push_back(input);
            prepared.edges.push_back(GradMode::recording() ? gradient_edge(input) : nullptr);
        } else if (has_current_shadow(input, *target)) {
            prepared.inputs.push_back(input.shadow());
            Arrivals::await_any(prepared.inputs.back());
            prepared.edges.push_back(GradMode::recording() ? gradient_edge(input) : nullptr);
        } else {
            prepared.inputs.push_back(ops::cast(input, *target));
            prepared.edges.push_back(GradMode::recording() ? gradient_edge(prepared.inputs.back()) : nullptr);
        }
        prepared.recording = prepared.recording || prepared.edges.back() != nullptr;
    }
    ++applied_count();  // behind the casts that it took
    if (OpTimer* const timer = OpTimer::current()) timer->begin_forward(name);
    return prepared;
}

int register_op(OpEntry entry) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    entries().push_back(entry);
    return 0;
}

std::vector<OpEntry> registered_ops() {
    std::vector<OpEntry> all = entries();
    std::sort(all.begin(), all.end(),
              [](const OpEntry& a, const OpEntry& b) { return std::strcmp(a.name, b.name) < 0; });
    all.erase(std::unique(all.begin(), all.end(),
                          [](const OpEntry& a, const OpEntry& b) { return !std::strcmp(a.name, b.name); }),
              all.end());
    return all;
}

}  // namespace invar
