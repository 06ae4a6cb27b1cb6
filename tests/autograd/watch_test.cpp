#include "invar/autograd/watch.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/ops/ops.h"

namespace invar {
namespace {

struct Recorder : OpWatcher {
    void forward(const ForwardRun& run) override {
        log.push_back("+" + run.module + ":" + run.op);
        results.push_back(run.result.dtype());
        again = run.again;
    }
    void backward(const BackwardRun& run) override {
        log.push_back("-" + run.node.module() + ":" + run.node.name());
        for (std::size_t i = 0; i < run.node.inputs().size(); ++i)
            if (const Tensor gradient = weight_gradient(run.node, i)) weights.push_back(gradient);
    }
    std::vector<std::string> log;
    std::vector<Dtype> results;
    std::vector<Tensor> weights;
    std::function<Tensor(const Tensors&)> again;
};

using Log = std::vector<std::string>;

TEST(OpWatcher, IsToldOfEveryOpInBothDirections) {
    Tensor w = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
    w.set_requires_grad();
    const Tensor x = Tensor::from<float>({1, 1}, {1, 2});
    Recorder recorder;
    {
        const WatchScope watch(&recorder);
        const Autocast cast(Dtype::f16);
        const ModuleScope scope("fc");
        backward(ops::sum(ops::linear(x, w)));
    }
    EXPECT_EQ(recorder.log, (Log{"+fc:cast", "+fc:cast", "+fc:linear", "+fc:cast", "+fc:sum", "-fc:sum", "-fc:cast",
                                 "-fc:linear", "-fc:cast"}));
    EXPECT_EQ(recorder.results[2], Dtype::f16);
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
}

TEST(OpWatcher, IsNotToldAfterItsScope) {
    Recorder recorder;
    { const WatchScope watch(&recorder); }
    (void)(Tensor::scalar(1) * 2.0);
    EXPECT_TRUE(recorder.log.empty());
    EXPECT_EQ(OpWatcher::current(), nullptr);
}

TEST(OpWatcher, CanRunAnOpAgainOnOtherInputs) {
    Recorder recorder;
    {
        const WatchScope watch(&recorder);
        (void)(Tensor::scalar(1) * 3.0);
    }
    EXPECT_EQ(recorder.again({Tensor::scalar(5)}).item(), 15);
    EXPECT_EQ(recorder.log.size(), 1u);
}

TEST(OpWatcher, SeesGradientsThatWentStraightIntoTheWeight) {
    Tensor w = Tensor::from<float>({1, 2}, {1, 2});
    w.set_requires_grad();
    w.set_grad(Tensor::from<float>({0, 0}, {1, 2}));
    Recorder recorder;
    const WatchScope watch(&recorder);
    backward(ops::sum(ops::linear(Tensor::from<float>({3, 4}, {1, 2}), w)));
    ASSERT_EQ(recorder.weights.size(), 1u);
    EXPECT_EQ(recorder.weights[0].to_vector<float>(), (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace invar
