#include "invar/autograd/node.h"

#include <queue>
#include <unordered_map>
#include <utility>

#include "invar/autograd/op_timer.h"
#include "invar/autograd/watch_pause.h"
#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

bool& recording_flag() {
    thread_local bool recording = true;
    return recording;
}

std::string& module_path() {
    thread_local std::string path;
    return path;
}

bool& light_flag() {
    thread_local bool light = false;
    return light;
}

LeafListener*& leaf_listener() {
    thread_local LeafListener* listener = nullptr;
    return listener;
}

template <class F>
void for_each_leaf(const Node& node, F&& tell) {
    for (const std::shared_ptr<Node>& input : node.inputs())
        if (const auto* leaf = dynamic_cast<const Accumulator*>(input.get())) tell(*leaf);
}

std::uint64_t& hook_count() {
    thread_local std::uint64_t count = 0;
    return count;
}

// One sequence for all threads: a graph may be begun on one and continued on another.
std::uint64_t next_sequence() {
    static std::atomic<std::uint64_t> sequence{0};
    return ++sequence;
}

Tensor filled_like(const Tensor& tensor, double value) {
    Tensor result = Tensor::empty_like(tensor);
    kernels_for(tensor.device()).fill(result.view(), value);
    return result;
}

Tensor copy_as(const Tensor& tensor, Dtype dtype) {
    Tensor result = Tensor::empty(tensor.shape(), dtype, tensor.device());
    kernels_for(tensor.device()).copy(tensor.view(), result.view());
    return result;
}

// total += gradient, whatever their dtypes: kernels add like to like, or anything into f32.
void add_into(const Tensor& gradient, const Tensor& total) {
    const bool direct = gradient.dtype() == total.dtype() || total.dtype() == Dtype::f32;
    kernels_for(total.device()).add_into((direct ? gradient : copy_as(gradient, total.dtype())).view(), total.view());
}

// A node's gradient so far. The first contribution is borrowed; only a second one makes a sum of its own.
class Sum {
  public:
    void add(const Tensor& gradient) {
        if (!total_) {
            total_ = gradient;
            return;
        }
        const Dtype wide = promote(total_.dtype(), gradient.dtype());
        const TimedPart timed(StepPart::backward, "add_gradients", wide,
                              [&] { return bytes_of(gradient) + 2 * bytes_of(total_); });
        if (!owned_ || total_.dtype() != wide) total_ = copy_as(total_, wide);
        owned_ = true;
        add_into(gradient, total_);
    }
    Tensor take() {
        owned_ = false;
        return std::exchange(total_, {});
    }
    bool is(const Shape& shape, Dtype dtype) const {
        return total_ && total_.shape() == shape && total_.dtype() == dtype && total_.is_contiguous();
    }

  private:
    Tensor total_;
    bool owned_ = false;
};

// Later nodes first: a node's sequence number is larger than those of all its inputs, leaves excepted, and leaves
// have nothing behind them.
struct Earlier {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
        return a->sequence() < b->sequence();
    }
};

// A backward on its way: the gradients so far, the nodes that have some, and the one whose turn it is.
struct Run {
    std::unordered_map<const Node*, Sum> sums;
    std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Earlier> ready;
    const Node* current = nullptr;

    void add(const std::shared_ptr<Node>& node, const Tensor& gradient) {
        const auto [place, fresh] = sums.try_emplace(node.get());
        place->second.add(gradient);
        if (fresh) ready.push(node);
    }
    // Whether `input`, one of the current node's, has its turn right after it, with the gradient that it is now handed.
    bool comes_next(const Node& input) const {
        if (sums.contains(&input) || input.readers() != 1 || input.has_hooks()) return false;
        const auto is_before = [&](const Node& other) { return other.sequence() <= input.sequence(); };
        for (const std::shared_ptr<Node>& other : current->inputs())
            if (other && dynamic_cast<const Accumulator*>(other.get()) == nullptr && !is_before(*other)) return false;
        return ready.empty() || is_before(*ready.top());
    }
};

// The backward that runs on this thread; nullptr where none does, and where a watcher that times nothing wants each
// node's own part.
Run*& running() {
    thread_local Run* run = nullptr;
    return run;
}

// Makes one the running one until the end of a scope. A checkpointed region runs a backward inside another one.
class RunScope {
  public:
    explicit RunScope(Run* run) : outer_(std::exchange(running(), run)) {}
    ~RunScope() { running() = outer_; }
    RunScope(const RunScope&) = delete;
    RunScope& operator=(const RunScope&) = delete;

  private:
    Run* outer_;
};

}  // namespace

Node::Node() : sequence_(next_sequence()), module_(module_path()) {}

// A deep graph that is dropped without a backward must not recurse through its destructors.
Node::~Node() {
    std::vector<std::shared_ptr<Node>> doomed = std::move(inputs_);
    while (!doomed.empty()) {
        std::shared_ptr<Node> node = std::move(doomed.back());
        doomed.pop_back();
        if (node && node.use_count() == 1) {
            for (auto& input : node->inputs_) doomed.push_back(std::move(input));
            node->inputs_.clear();
        }
    }
}

void Node::set_inputs(std::vector<std::shared_ptr<Node>> inputs) {
    inputs_ = std::move(inputs);
    for (const std::shared_ptr<Node>& input : inputs_)
        if (input) input->readers_.fetch_add(1, std::memory_order_relaxed);
}

Tensor Node::recompute(const Tensor&) {
    fail("{}: its result cannot be made anew", where());
}

std::string Node::where() const {
    return module_.empty() ? name() : fmt::format("{} in {}", name(), module_);
}

Tensor Node::run_hooks(Tensor gradient) const {
    for (const GradientHook& hook : hooks_) {
        ++hook_count();
        const Tensor changed = hook(gradient);
        if (!changed) continue;
        check(changed.shape() == gradient.shape() && changed.device() == gradient.device(),
              "{}: a gradient hook returned {} for a gradient {}", where(), changed.str(), gradient.str());
        gradient = changed;
    }
    return gradient;
}

void register_hook(const Tensor& result, GradientHook hook) {
    check(result.defined() && result.node() != nullptr,
          "gradient hooks belong to results that are recorded for backward, not to {}",
          !result                  ? "an undefined tensor"
          : result.requires_grad() ? "leaves"
                                   : "tensors without gradients");
    result.node()->add_hook(std::move(hook));
}

std::shared_ptr<const Tensor> retain_grad(const Tensor& result) {
    auto kept = std::make_shared<Tensor>();
    register_hook(result, [kept](const Tensor& gradient) {
        *kept = gradient.detach();
        return Tensor();
    });
    return kept;
}

std::uint64_t hooks_run() {
    return hook_count();
}

std::shared_ptr<Node> gradient_edge(const Tensor& tensor) {
    if (!tensor || !tensor.requires_grad()) return nullptr;
    if (tensor.node()) return tensor.node();
    std::shared_ptr<Node> node = tensor.accumulator().lock();
    if (!node) {
        node = std::make_shared<Accumulator>(tensor);
        tensor.accumulator() = node;
    }
    return node;
}

Tensors Accumulator::backward(const Tensor& gradient) {
    const TimedPart timed(StepPart::backward, "accumulate", leaf_.dtype(),
                          [&] { return bytes_of(gradient) + bytes_of(leaf_) * (leaf_.grad_forgotten() ? 1 : 2); });
    if (leaf_.grad_forgotten()) {
        const Tensor held = leaf_.grad_to_overwrite();
        kernels_for(held.device()).copy(gradient.view(), held.view());
        held.bump_version();
        return {};
    }
    const Tensor held = leaf_.grad();
    if (held) {
        add_into(gradient, held);
        held.bump_version();
    } else {
        const PurposeScope purpose(Purpose::gradients);
        leaf_.set_grad(copy_as(gradient, leaf_.dtype()));
    }
    return {};
}

// Kept without its edge: an op that saves its own result would otherwise own itself and never be freed.
SavedTensor::SavedTensor(const Tensor& tensor)
    : tensor_(tensor ? tensor.detach() : tensor), version_(tensor ? tensor.version() : 0) {}

SavedTensor::SavedTensor(const Tensor& window, const Tensor& result, std::shared_ptr<Node> maker)
    : version_(result.version()),
      recipe_(std::make_shared<Recipe>(Recipe{std::move(maker), result.storage(), window.offset() - result.offset(),
                                              window.shape(), window.strides()})) {}

Tensor SavedTensor::unpack(const Node& node, const Tensor& gradient) const {
    const auto unchanged = [&](std::uint64_t version, const std::string& what) {
        check(version == version_,
              "{}: a tensor that backward needs ({}) was changed in place after the forward pass (version {}, saved at "
              "{}); copy it before changing it",
              node.where(), what, version, version_);
    };
    if (tensor_) unchanged(tensor_.version(), tensor_.str());
    OpTimer* const timer = OpTimer::paused();
    if (timer != nullptr && tensor_) timer->read_saved(tensor_);
    if (!recipe_) return tensor_;
    if (const std::shared_ptr<Storage> storage = recipe_->storage.lock())
        unchanged(storage->version(), "the result of " + recipe_->maker->where());
    Node& maker = *recipe_->maker;
    const bool may_begin = gradient && running() != nullptr && running()->comes_next(maker);
    const Tensor again = maker.recompute(may_begin ? gradient : Tensor{});
    return again.as_strided(recipe_->offset, recipe_->shape, recipe_->strides);
}

LightRecompute::LightRecompute(bool on) : previous_(std::exchange(light_flag(), on)) {}
LightRecompute::~LightRecompute() {
    light_flag() = previous_;
}
bool LightRecompute::on() {
    return light_flag();
}

LeafListener::Scope::Scope(LeafListener* listener) : previous_(std::exchange(leaf_listener(), listener)) {}
LeafListener::Scope::~Scope() {
    leaf_listener() = previous_;
}

void backward(const Tensor& root, const Tensor& gradient, bool keep_graph) {
    backward(Tensors{root}, Tensors{gradient}, keep_graph);
}

void backward(const Tensors& roots, const Tensors& gradients, bool keep_graph) {
    check(roots.size() == gradients.size(), "backward: {} gradients for {} results", gradients.size(), roots.size());
    for (std::size_t i = 0; i < roots.size(); ++i) {
        const Tensor &root = roots[i], &gradient = gradients[i];
        check(root.requires_grad(), "backward: the tensor {} does not depend on anything that requires a gradient",
              root.str());
        check(gradient.defined() || root.numel() == 1,
              "backward: only a scalar has an implicit gradient; {} needs one given", root.str());
        check(!gradient.defined() || gradient.shape() == root.shape(), "backward: gradient {} for a result of shape {}",
              gradient.str(), root.shape().str());
        check(!gradient.defined() || gradient.device() == root.device(),
              "backward: gradient {} for a result on {}; a GradScaler is made for the device of the loss",
              gradient.str(), root.device().str());
    }

    const NoGrad no_grad;
    Run run;
    for (std::size_t i = 0; i < roots.size(); ++i)
        run.add(gradient_edge(roots[i]), gradients[i].defined() ? gradients[i] : filled_like(roots[i], 1.0));

    while (!run.ready.empty()) {
        const std::shared_ptr<Node> node = run.ready.top();
        run.ready.pop();
        run.current = node.get();
        Tensor incoming = node->run_hooks(run.sums.extract(node.get()).mapped().take());
        Tensors outgoing;
        LeafListener* const listener = leaf_listener();
        if (listener != nullptr) for_each_leaf(*node, [&](const Accumulator& to) { listener->before_gradient(to.leaf()); });
        if (OpWatcher* const watcher = OpWatcher::current()) {
            OpTimer* const timer = OpTimer::current();
            const PauseWatch pause;
            const RunScope mine_or_apart(timer != nullptr ? &run : nullptr);
            if (timer != nullptr) timer->begin_backward(*node);
            outgoing = node->backward(incoming);
            watcher->backward({*node, incoming, outgoing});
        } else {
            const RunScope mine(&run);
            outgoing = node->backward(incoming);
        }
        incoming = {};
        if (!keep_graph) node->release();
        for (std::size_t i = 0; i < outgoing.size(); ++i) {
            const std::shared_ptr<Node>& input = node->inputs()[i];
            if (!input || !outgoing[i]) continue;
            // Leaves add at once, so that their gradients are not held until the end.
            if (dynamic_cast<Accumulator*>(input.get()) != nullptr) {
                input->backward(outgoing[i]);
                continue;
            }
            run.add(input, outgoing[i]);
            outgoing[i] = {};
        }
        if (listener != nullptr)
            for_each_leaf(*node, [&](const Accumulator& to) { listener->after_gradient(to.leaf(), to.readers()); });
    }
}

Tensor take_pending_gradient(const Node& input, const Shape& shape, Dtype dtype) {
    if (running() == nullptr) return {};
    const auto found = running()->sums.find(&input);
    // The entry stays, and with it the node's place in the queue.
    return found != running()->sums.end() && found->second.is(shape, dtype) ? found->second.take() : Tensor{};
}

GradMode::GradMode(bool recording) : previous_(recording_flag()) {
    recording_flag() = recording;
}
GradMode::~GradMode() {
    recording_flag() = previous_;
}
bool GradMode::recording() {
    return recording_flag();
}

ModuleScope::ModuleScope(const std::string& name) : previous_(module_path().size()) {
    if (name.empty()) {
        module_path().swap(outside_);
        return;
    }
    if (!module_path().empty()) module_path() += '.';
    module_path() += name;
}
ModuleScope::~ModuleScope() {
    if (outside_.empty())
        module_path().resize(previous_);
    else
        module_path().swap(outside_);
}
const std::string& ModuleScope::path() {
    return module_path();
}

}  // namespace invar
