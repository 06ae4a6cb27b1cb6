// Node: one recorded operation, waiting to run backward. Edges point from a result to what it was made of.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

// Gets the gradient of a result when backward comes to it. What it returns takes the gradient's place; an undefined
// tensor leaves it as it is.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

class Node {
  public:
    Node();
    virtual ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    virtual const char* name() const = 0;
    // The gradients of the inputs, in order; undefined where none is needed or where the node has already added it
    // into the leaf itself.
    virtual Tensors backward(const Tensor& gradient) = 0;
    // Lets go of everything saved for backward.
    virtual void release() = 0;
    // Whether the result can be made anew at little cost from what the node has saved, to the bit; and that, dense.
    // A `gradient` is the one that the node's own backward will be given next: it may begin with it in the same pass,
    // and may write over it what it will make of it.
    virtual bool can_recompute() const { return false; }
    virtual Tensor recompute(const Tensor& gradient = {});

    std::uint64_t sequence() const { return sequence_; }
    const std::string& module() const { return module_; }
    const std::vector<std::shared_ptr<Node>>& inputs() const { return inputs_; }
    void set_inputs(std::vector<std::shared_ptr<Node>> inputs);
    bool has_hooks() const { return !hooks_.empty(); }
    // How many nodes were ever recorded as readers of the result.
    int readers() const { return readers_.load(std::memory_order_relaxed); }
    // "conv2d in conv1"
    std::string where() const;
    void add_hook(GradientHook hook) { hooks_.push_back(std::move(hook)); }
    Tensor run_hooks(Tensor gradient) const;  // in the order they were added

  private:
    std::uint64_t sequence_;
    std::string module_;  // the path of the module that ran the op
    std::vector<std::shared_ptr<Node>> inputs_;
    std::vector<GradientHook> hooks_;
    std::atomic<int> readers_{0};
};

// The node that a result of this tensor would point to: what made it, or, for a leaf that wants a gradient, the node
// that adds into its grad(). nullptr where no gradient is wanted.
std::shared_ptr<Node> gradient_edge(const Tensor& tensor);

// For a result between leaves and loss. A leaf's gradient is in grad(), and changing it is the optimizer's business.
void register_hook(const Tensor& result, GradientHook hook);
// Where backward leaves the gradient of such a result; undefined until then.
std::shared_ptr<const Tensor> retain_grad(const Tensor& result);
// How many hooks have run on this thread: a step that is recorded and replayed would leave them out.
std::uint64_t hooks_run();

// Where a leaf's gradient is collected, so that an op can add its part in place instead of handing it on.
class Accumulator : public Node {
  public:
    explicit Accumulator(const Tensor& leaf) : leaf_(leaf) {}
    const char* name() const override { return "accumulate"; }
    Tensors backward(const Tensor& gradient) override;
    void release() override {}
    Tensor leaf() const { return leaf_; }

  private:
    Tensor leaf_;
};

// A tensor kept for backward, with the version it had: reading it after an in-place write is an error.
class SavedTensor {
  public:
    SavedTensor() = default;
    explicit SavedTensor(const Tensor& tensor);
    // A window onto the dense result of a node that can make it anew: the node is kept and the memory is not.
    SavedTensor(const Tensor& window, const Tensor& result, std::shared_ptr<Node> maker);
    // `gradient`, where it is given: what the node that asks will hand on to the input that was saved.
    Tensor unpack(const Node& node, const Tensor& gradient = {}) const;

  private:
    struct Recipe {
        std::shared_ptr<Node> maker;
        std::weak_ptr<Storage> storage;
        std::int64_t offset;
        Shape shape, strides;
    };
    Tensor tensor_;
    std::uint64_t version_ = 0;
    std::shared_ptr<const Recipe> recipe_;
};

// While one says so on this thread, ops save results that are cheap to make anew (norms, activations, casts) as how
// they were made. Backward makes them again, to the bit, each when it is needed.
class LightRecompute {
  public:
    explicit LightRecompute(bool on);
    ~LightRecompute();
    LightRecompute(const LightRecompute&) = delete;
    LightRecompute& operator=(const LightRecompute&) = delete;
    static bool on();

  private:
    bool previous_;
};

// Told of leaves while a backward runs on this thread: before an operation runs that adds to their gradient, and when it
// has added.
class LeafListener {
  public:
    virtual ~LeafListener() = default;
    virtual void before_gradient(const Tensor& leaf) = 0;
    // `readers`: how many operations have been recorded that read it, each of which adds once.
    virtual void after_gradient(const Tensor& leaf, int readers) = 0;

    class Scope {
      public:
        explicit Scope(LeafListener* listener);  // nullptr: nobody listens
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        LeafListener* previous_;
    };
};

// Runs backward from a scalar (or with an explicit gradient). Saved tensors are freed as it goes, unless kept.
void backward(const Tensor& root, const Tensor& gradient = {}, bool keep_graph = false);
// From several results at once, each with its gradient: what they share is gone through once, with the sum.
void backward(const Tensors& roots, const Tensors& gradients, bool keep_graph = false);

// For a node that is running backward: the gradient that this backward has collected so far for one of its inputs. Who
// takes it adds it to what it hands on to that input, which then gets the whole sum in one pass. Undefined where there
// is none, or none of this shape and dtype, dense; and where an OpWatcher is told of each node's own part.
Tensor take_pending_gradient(const Node& input, const Shape& shape, Dtype dtype);

// Whether operations are recorded on this thread, until the end of a scope.
class GradMode {
  public:
    explicit GradMode(bool recording);
    ~GradMode();
    GradMode(const GradMode&) = delete;
    GradMode& operator=(const GradMode&) = delete;
    static bool recording();

  private:
    bool previous_;
};

struct NoGrad : GradMode {
    NoGrad() : GradMode(false) {}
};

// The path of the module that is running on this thread ("features.conv1"), for nodes and diagnosis.
class ModuleScope {
  public:
    // "" is the outermost module, whatever calls it.
    explicit ModuleScope(const std::string& name);
    ~ModuleScope();
    ModuleScope(const ModuleScope&) = delete;
    ModuleScope& operator=(const ModuleScope&) = delete;
    static const std::string& path();

  private:
    std::size_t previous_;
    std::string outside_;  // of the outermost module: the path that it was called under
};

}  // namespace invar
