// The one crossing of every operation: check -> cast -> run -> record.
// An op is a struct with kName, kCast, its attributes as members, forward and backward, and kDoc, a few words for
// `invar ops`; one without kCast does not compile. An op that says kWidensItself, and any of the class wide_inside,
// gets its inputs as they are, computes in FP32 inside, and gives its result in ctx.result_dtype(): no FP32 copy of an
// activation is made only to be read once. One whose result has no gradient, whole numbers or booleans, says
// kNoGradient instead of a backward. One whose result costs little has a recompute, which makes it anew, to the bit,
// from what forward has saved (trainer.recompute=light); and it may have a recompute_in_backward, which also begins its
// backward, and which backward, given the same gradient, then goes on from.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <vector>

#include "invar/autograd/watch.h"
#include "invar/core/cast_class.h"
#include "invar/kernels/kernels.h"

namespace invar {

// What an op may ask for while it runs, forward or backward.
class Context {
  public:
    // --- forward ---
    void save(const Tensor& tensor);
    bool recording() const { return node_ != nullptr; }
    // Whether to save input i would keep nothing in memory that is not there anyway.
    bool saves_for_nothing(std::size_t i) const;
    // What the result is to be written in, for an op that widens what it reads by itself.
    Dtype result_dtype() const { return result_dtype_; }

    // --- backward ---
    Tensor saved(std::size_t i) const;
    // For an op that has made the gradient of the input that it saved and hands it on as it is: where the input is made
    // anew, the op that does it may begin its own backward in the same pass.
    Tensor saved(std::size_t i, const Tensor& gradient) const;
    std::size_t saved_count() const { return saved_.size(); }
    // Whether anyone wants the gradient of input i.
    bool needs(std::size_t i) const {
        return node_ != nullptr && i < node_->inputs().size() && node_->inputs()[i] != nullptr;
    }

    // Where to put the gradient of input i, an FP32 (FP64) weight gradient of this shape: straight into the leaf's
    // gradient where it has one, adding unless it is the first; otherwise into a new tensor that is then handed on.
    struct Slot {
        Tensor tensor;
        bool accumulate = false;
        bool in_leaf = false;
        View view() const { return tensor ? tensor.view() : View{}; }
        Tensor result() const { return in_leaf ? Tensor{} : tensor; }
    };
    // Whether input i is a leaf, or the cast of one: its gradient is worth keeping in FP32.
    bool is_weight(std::size_t i) const;
    Slot slot(std::size_t i, const Shape& shape, Dtype dtype, Device device) const;

    // The gradient of input i that others have sent so far in this backward, where there is one of this shape and
    // dtype: whoever takes it adds it to what it returns, in the pass that it makes anyway. The sum is the one, to the
    // bit, that is made of what nobody takes.
    Tensor take_pending(std::size_t i, const Shape& shape, Dtype dtype) const;

    void release();
    bool released() const { return released_; }

  private:
    friend class Recorder;
    // Of input i, where its result can be made anew instead of being saved; else nullptr.
    std::shared_ptr<Node> maker_of(std::size_t i) const;

    Node* node_ = nullptr;
    const Tensors* inputs_ = nullptr;  // while forward runs
    std::vector<SavedTensor> saved_;
    bool released_ = false;
    Dtype result_dtype_ = Dtype::f32;
};

// The inputs of an op after autocast, and where their gradients go.
struct Prepared {
    Tensors inputs;
    std::vector<std::shared_ptr<Node>> edges;
    bool recording = false;
    Dtype result = Dtype::f32;  // of an op that widens by itself
};
Prepared prepare(const char* name, CastClass cast, bool widens_itself, const Tensors& inputs);

class Recorder {
  public:
    static void attach(Context& context, Node* node, const Prepared& prepared) {
        context.node_ = node;
        context.inputs_ = &prepared.inputs;
        context.result_dtype_ = prepared.result;
    }
    static void detach(Context& context) { context.inputs_ = nullptr; }
};

// An error where backward has freed what the node saved.
void check_not_released(const Node& node, bool released);
// How many ops this thread has applied.
std::int64_t ops_applied();

// The gradient as an op expects it: of its result's shape and dtype, and not after a backward that freed what it saved.
Tensor check_gradient(const Node& node, bool released, const Tensor& gradient, const Shape& shape, Dtype dtype);

// What every op states; apply() takes nothing less.
template <class Op>
concept OpDefinition = requires(Op op, Context& context, const Tensors& inputs, const Tensor& gradient) {
    { Op::kName } -> std::convertible_to<const char*>;
    requires std::same_as<std::remove_cvref_t<decltype(Op::kCast)>, CastClass>;
    { op.forward(context, inputs) } -> std::same_as<Tensor>;
    { op.backward(context, gradient) } -> std::same_as<Tensors>;
};

// One whose result is counted, compared or chosen from, and has no gradient.
template <class Op>
concept PlainOpDefinition = requires(Op op, const Tensors& inputs) {
    requires Op::kNoGradient;
    { Op::kName } -> std::convertible_to<const char*>;
    requires std::same_as<std::remove_cvref_t<decltype(Op::kCast)>, CastClass>;
    { op.forward(inputs) } -> std::same_as<Tensor>;
};

template <class Op>
inline constexpr bool kRecomputes = requires(Op op, Context& context, const Tensor& result) {
    op.recompute(context, result);
};

template <class Op>
class OpNode : public Node {
  public:
    explicit OpNode(Op op) : op(std::move(op)) {}
    const char* name() const override { return Op::kName; }
    Tensors backward(const Tensor& gradient) override {
        // A cast says kAnyGradient: it takes an FP32 weight gradient on to its FP32 leaf without rounding it.
        const Dtype expected = requires {
            Op::kAnyGradient;
        }
        ? gradient.dtype() : dtype;
        again_ = {};
        return op.backward(context, check_gradient(*this, context.released(), gradient, shape, expected));
    }
    void release() override {
        context.release();
        again_ = {};
    }
    bool can_recompute() const override {
        if constexpr (requires { op.can_recompute(context); })
            return op.can_recompute(context);
        else
            return kRecomputes<Op>;
    }
    // Kept for whoever else needs it, until this node's own turn comes.
    Tensor recompute(const Tensor& gradient) override {
        if constexpr (kRecomputes<Op>) {
            if (!again_) {
                check_not_released(*this, context.released());
                const Tensor result = Tensor::empty(shape, dtype, device);
                run_again(result, gradient);
                again_ = result;
            }
            return again_;
        } else {
            return Node::recompute(gradient);
        }
    }
    Op op;
    Context context;
    Shape shape;  // of the result
    Dtype dtype = Dtype::f32;
    Device device;

  private:
    void run_again(const Tensor& result, const Tensor& gradient) {
        if constexpr (requires { op.recompute_in_backward(context, gradient, result); })
            if (gradient && gradient.shape() == shape && gradient.dtype() == dtype && gradient.is_contiguous())
                return op.recompute_in_backward(context, gradient, result);
        op.recompute(context, result);
    }
    Tensor again_;
};

// The register behind `invar ops`: every op that is applied anywhere in the library enters itself.
struct OpEntry {
    const char* name;
    CastClass cast;
    const char* doc;  // what it computes, in a few words; "" where the op does not say
    bool has_gradient = true;
};
int register_op(OpEntry entry);
std::vector<OpEntry> registered_ops();  // sorted by name

template <class Op>
constexpr const char* doc_of() {
    if constexpr (requires { Op::kDoc; })
        return Op::kDoc;
    else
        return "";
}

template <class Op>
inline const int kRegistered = register_op({Op::kName, Op::kCast, doc_of<Op>(), OpDefinition<Op>});

// Whether an op gets its inputs as they are and widens them by itself.
template <class Op>
inline constexpr bool kWidens = Op::kCast == CastClass::wide_inside || requires {
    Op::kWidensItself;
};

template <OpDefinition Op>
Tensor run_prepared(Op op, Prepared& prepared) {
    if (!prepared.recording) {
        Context context;
        Recorder::attach(context, nullptr, prepared);
        return op.forward(context, prepared.inputs);
    }
    auto node = std::make_shared<OpNode<Op>>(std::move(op));
    node->set_inputs(std::move(prepared.edges));
    Recorder::attach(node->context, node.get(), prepared);
    Tensor result = node->op.forward(node->context, prepared.inputs);
    Recorder::detach(node->context);
    node->shape = result.shape();
    node->dtype = result.dtype();
    node->device = result.device();
    result.set_node(std::move(node));
    return result;
}

template <OpDefinition Op>
Tensor apply(Op op, const Tensors& inputs) {
    (void)kRegistered<Op>;
    Prepared prepared = prepare(Op::kName, Op::kCast, kWidens<Op>, inputs);
    OpWatcher* const watcher = OpWatcher::current();
    if (watcher == nullptr) return run_prepared(std::move(op), prepared);
    // Copied before it runs: an op may let go of what it was given.
    const auto again = [op](const Tensors& others) { return apply(Op(op), others); };
    const Tensor result = run_prepared(std::move(op), prepared);
    const WatchScope unwatched(nullptr);
    watcher->forward({Op::kName, ModuleScope::path(), prepared.inputs, result, again});
    return result;
}

template <PlainOpDefinition Op>
Tensor apply(Op op, const Tensors& inputs) {
    (void)kRegistered<Op>;
    const NoGrad no_grad;
    return op.forward(prepare(Op::kName, Op::kCast, false, inputs).inputs);
}

}  // namespace invar
