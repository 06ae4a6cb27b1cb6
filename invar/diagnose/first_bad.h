// FirstBad: the watcher that stops at the first operation whose result is not finite.
#pragma once

#include <optional>
#include <unordered_map>

#include "invar/autograd/watch.h"
#include "invar/diagnose/finding.h"

namespace invar {

inline constexpr const char* kSumOfGradients = "sum of gradients";

// Ops are numbered in the order they run forward, which is the same in every replay of a step. A first pass finds the
// number; a second one keeps what that op was given, so that only one op's inputs are ever held.
class FirstBad : public OpWatcher {
  public:
    explicit FirstBad(std::optional<std::size_t> keep = {}) : keep_(keep) {}
    void forward(const ForwardRun& run) override;
    void backward(const BackwardRun& run) override;

    bool found = false;
    Direction direction = Direction::forward;
    std::string module, op;
    Dtype dtype = Dtype::f32;
    Range result;
    std::optional<std::size_t> number;  // nothing: the fault lies between ops, in a sum of gradients
    std::optional<std::size_t> summed;  // and this is the op whose result's gradient is that sum

    // Of the op to keep.
    Tensors inputs;
    std::vector<bool> wanted;  // the inputs whose gradients are asked for
    Tensor incoming;
    std::function<Tensor(const Tensors&)> again;
    Tensors parts;  // what its readers have handed back, in FP32: together the gradient of its result

  private:
    void note(Direction towards, const std::string& path, const std::string& name, const Tensor& bad);

    std::optional<std::size_t> keep_;
    std::size_t next_ = 0;
    std::unordered_map<const Node*, std::size_t> numbers_;
};

bool all_finite(const Tensor& tensor);

// sum_in_fp32: the parts of a gradient together. run_in_fp32: the kept op on the same inputs in FP32: backward with the
// same incoming gradient. `masters` gives a better input where there is one: the FP32 weight for its 16-bit copy.
struct InFp32 {
    bool finite = false;
    double largest = 0.0;
};
InFp32 sum_in_fp32(const Tensors& parts);
InFp32 run_in_fp32(const FirstBad& kept, const std::function<Tensor(const Tensor&)>& masters);

}  // namespace invar
