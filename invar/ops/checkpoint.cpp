#include "invar/ops/checkpoint.h"

#include <algorithm>
#include <utility>

#include "invar/amp/autocast.h"
#include "invar/autograd/op_timer.h"
#include "invar/autograd/watch_pause.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/kernels/flops.h"
#include "invar/ops/apply.h"

namespace invar::ops {

namespace {

bool& recomputing_flag() {
    thread_local bool flag = false;
    return flag;
}

// In numbers of ops that this thread has applied: the last of them that is a product, and the one that is not to be
// computed; -1 where there is none.
struct ProductTrack {
    std::int64_t last = -1, unread = -1;
};
ProductTrack& products() {
    thread_local ProductTrack track;
    return track;
}

// What a region applies, from its beginning on: how many ops, and the one that it ends with where that is a product.
struct RegionOps {
    std::int64_t count = 0, last_product = -1;
    static RegionOps since(std::int64_t first) {
        const std::int64_t now = ops_applied();
        return {now - first, now > first && products().last == now ? now - first : -1};
    }
};

// The first run's surroundings, until the end of a scope.
class Rerun {
  public:
    Rerun(const CastPolicy& policy, RngState rng, std::int64_t unread)
        : cast_(policy),
          recording_(true),
          rng_(default_generator().state()),
          outer_(recomputing_flag()),
          outer_unread_(products().unread) {
        default_generator().set_state(rng);
        recomputing_flag() = true;
        products().unread = unread;
    }
    ~Rerun() {
        default_generator().set_state(rng_);
        recomputing_flag() = outer_;
        products().unread = outer_unread_;
    }
    Rerun(const Rerun&) = delete;
    Rerun& operator=(const Rerun&) = delete;

  private:
    UncountedFlops uncounted_;
    Autocast cast_;
    GradMode recording_;
    RngState rng_;
    bool outer_;
    std::int64_t outer_unread_;
};

using Region = std::function<Tensors(const Tensors&)>;

// Not an op of apply(): it is recorded even where no input wants a gradient, because parameters inside may.
class Checkpoint : public Node {
  public:
    Checkpoint(Region region, const Tensors& inputs)
        : region_(std::move(region)), policy_(Autocast::current()), rng_(default_generator().state()) {
        std::vector<std::shared_ptr<Node>> edges;
        for (const Tensor& input : inputs) {
            kept_.emplace_back(input);
            edges.push_back(gradient_edge(input));
        }
        set_inputs(std::move(edges));
    }
    const char* name() const override { return "checkpoint"; }
    // The gradients of results that have nodes of their own were left here before: this one has none itself then.
    Tensors backward(const Tensor& gradient) override {
        if (released_)
            fail("{}: backward ran through this region before, and its input is gone; pass keep_graph to the first one",
                 where());
        Tensors gradients = std::exchange(gradients_, {});
        if (gradients.empty()) gradients = {gradient};
        const ResumeWatch watch;  // what follows is forward and backward of the region's own ops
        const Tensors inputs = leaves();
        // A watcher is shown every result, unless it only times. A region that took another way this time has left out
        // what it should not.
        Tensors results;
        const bool watched = OpWatcher::current() != nullptr && OpTimer::current() == nullptr;
        const bool may_leave_out = ops_.last_product > 0 && !watched;
        if (!may_leave_out || run_again(inputs, ops_.last_product, results) != ops_.count)
            run_again(inputs, -1, results);
        Tensors roots, incoming;
        for (std::size_t i = 0; i < results.size() && i < gradients.size(); ++i) {
            if (!gradients[i] || !results[i] || !results[i].requires_grad()) continue;
            roots.push_back(results[i]);
            incoming.push_back(gradients[i]);
        }
        if (!roots.empty()) invar::backward(roots, incoming);
        Tensors outgoing;
        for (const Tensor& input : inputs) outgoing.push_back(input ? input.grad() : input);
        return outgoing;
    }
    void set_ops(RegionOps ops) { ops_ = ops; }
    void release() override {
        kept_.clear();
        released_ = true;
    }
    void leave(std::size_t result, const Tensor& gradient) {
        gradients_.resize(std::max(gradients_.size(), result + 1));
        gradients_[result] = gradient;
    }

  private:
    Tensors leaves() const {
        Tensors inputs;
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            const Tensor kept = kept_[i].unpack(*this);
            inputs.push_back(kept ? kept.detach() : kept);
            if (this->inputs()[i]) inputs.back().set_requires_grad();
        }
        return inputs;
    }
    // With one op, counted from the beginning of the region, left out where it is a product; returns how many it took.
    std::int64_t run_again(const Tensors& inputs, std::int64_t unread, Tensors& results) {
        const std::int64_t first = ops_applied();
        const Rerun rerun(policy_, rng_, unread > 0 ? first + unread : -1);
        const ModuleScope scope(module());
        results = region_(inputs);
        return ops_applied() - first;
    }

    Region region_;
    std::vector<SavedTensor> kept_;
    RegionOps ops_;
    CastPolicy policy_;
    RngState rng_;
    Tensors gradients_;
    bool released_ = false;
};

// One of a region's several results. They are all behind the region's own node in the order of backward, which
// therefore runs when every gradient that will come has been left with it.
class CheckpointResult : public Node {
  public:
    CheckpointResult(const std::shared_ptr<Checkpoint>& region, std::size_t result)
        : region_(*region), result_(result) {
        set_inputs({region});
    }
    const char* name() const override { return "checkpoint_result"; }
    Tensors backward(const Tensor& gradient) override {
        region_.leave(result_, gradient);
        return {Tensor::scalar(0)};  // only says that the region is to run
    }
    void release() override {}

  private:
    Checkpoint& region_;  // kept by the edge to it
    std::size_t result_;
};

}  // namespace

Tensors checkpoint(const Region& region, const Tensors& inputs) {
    if (!GradMode::recording()) return region(inputs);
    const auto node = std::make_shared<Checkpoint>(region, inputs);
    Tensors results;
    {
        const NoGrad no_grad;
        Tensors detached;
        for (const Tensor& input : inputs) detached.push_back(input ? input.detach() : input);
        const std::int64_t first = ops_applied();
        results = region(detached);
        node->set_ops(RegionOps::since(first));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (!results[i]) continue;
        // detach: the region may hand back its input, or something it keeps, which must not get this edge.
        results[i] = results[i].detach();
        if (!is_floating(results[i].dtype())) continue;
        results[i].set_node(results.size() == 1 ? std::shared_ptr<Node>(node)
                                                : std::make_shared<CheckpointResult>(node, i));
    }
    return results;
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& x) {
    return checkpoint([function](const Tensors& inputs) { return Tensors{function(inputs[0])}; }, Tensors{x})[0];
}

bool recomputing() {
    return recomputing_flag();
}

bool is_unread_product() {
    products().last = ops_applied();
    return products().unread == ops_applied();
}

}  // namespace invar::ops
