#include "invar/ops/checkpoint.h"

#include "invar/amp/autocast.h"
#include "invar/autograd/watch_pause.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/ops/apply.h"

namespace invar::ops {

namespace {

bool& recomputing_flag() {
    thread_local bool flag = false;
    return flag;
}

// The first run's surroundings, until the end of a scope.
class Rerun {
  public:
    Rerun(const CastPolicy& policy, RngState rng)
        : cast_(policy), recording_(true), rng_(default_generator().state()), outer_(recomputing_flag()) {
        default_generator().set_state(rng);
        recomputing_flag() = true;
    }
    ~Rerun() {
        default_generator().set_state(rng_);
        recomputing_flag() = outer_;
    }
    Rerun(const Rerun&) = delete;
    Rerun& operator=(const Rerun&) = delete;

  private:
    Autocast cast_;
    GradMode recording_;
    RngState rng_;
    bool outer_;
};

// Not an op of apply(): it is recorded even where x itself wants no gradient, because parameters inside may.
class Checkpoint : public Node {
  public:
    Checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& x)
        : function_(std::move(function)), x_(x), policy_(Autocast::current()), rng_(default_generator().state()) {
        set_inputs({gradient_edge(x)});
    }
    const char* name() const override { return "checkpoint"; }
    Tensors backward(const Tensor& gradient) override {
        if (released_)
            fail("{}: backward ran through this region before, and its input is gone; pass keep_graph to the first one",
                 where());
        const ResumeWatch watch;  // what follows is forward and backward of the region's own ops
        Tensor x = x_.unpack(*this).detach();
        if (inputs()[0]) x.set_requires_grad();
        Tensor result;
        {
            const Rerun rerun(policy_, rng_);
            const ModuleScope scope(module());
            result = function_(x);
        }
        if (!result.requires_grad()) return {Tensor{}};
        invar::backward(result, gradient);
        return {x.grad()};
    }
    void release() override {
        x_ = SavedTensor();
        released_ = true;
    }

  private:
    std::function<Tensor(const Tensor&)> function_;
    SavedTensor x_;
    CastPolicy policy_;
    RngState rng_;
    bool released_ = false;
};

}  // namespace

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& x) {
    if (!GradMode::recording()) return function(x);
    auto node = std::make_shared<Checkpoint>(function, x);
    const NoGrad no_grad;
    // detach: the function may hand back its input, or something it keeps, which must not get this edge.
    Tensor result = function(x.detach()).detach();
    result.set_node(std::move(node));
    return result;
}

bool recomputing() {
    return recomputing_flag();
}

}  // namespace invar::ops
