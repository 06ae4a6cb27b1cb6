// ParameterStore: all parameters of a model in flat arrays, so that one pass serves them all. Keeps FP32 masters, the
// low-precision shadow that forward uses, the FP32 gradients, and the optimizer's moments.
#pragma once

#include <optional>
#include <vector>

#include "invar/amp/precision.h"
#include "invar/kernels/kernels.h"
#include "invar/nn/parameter.h"

namespace invar {

struct StoreOptions {
    Dtype weights = Dtype::f32;   // 16 bits: no masters at all, updates are rounded to the weight itself
    std::optional<Dtype> shadow;  // the low-precision copy that autocast uses instead of casting
    static StoreOptions for_precision(const Precision& precision);
};

class ParameterStore {
  public:
    // Moves the parameters into the store: their values become windows of it, and what was frozen (requires_grad is
    // false) stays so. `group_of` has one entry a parameter, `moments` is 0, 1 or 2.
    ParameterStore(std::vector<Parameter*> parameters, const std::vector<int>& group_of, int moments,
                   StoreOptions options);
    ~ParameterStore();
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    const std::vector<Segment>& places() const { return places_; }  // of each parameter
    FlatStore flat() const;
    Tensor weights() const { return weights_; }
    Tensor shadow() const { return shadow_; }
    // All of them; zeros where a parameter has none. Takes in what was given by set_grad(), none or FP32 of the
    // parameter's shape, and throws for others.
    Tensor gradients() const;
    // Parameter i's part of a moment.
    Tensor moment(int which, std::size_t i) const;
    int moments() const { return int(moments_.size()); }

    void zero_gradients();  // from here on no parameter has a gradient, until something adds to it
    // Which parameters have one. A replayed step gives them again where the recorded one did.
    std::vector<bool> have_gradients() const;
    void set_have_gradients(const std::vector<bool>& have) const;

    // What the coming step goes over: parameters of a group that lie side by side, in one piece as long as all of them
    // have a gradient at every step. One without it stands still, weight and moments, and so does its count of steps.
    const std::vector<Segment>& segments_to_step();
    // How many steps each parameter was without a gradient. Read and written like moments: late, not in the step.
    std::vector<std::int64_t> missed_steps() const;
    void set_missed_steps(const std::vector<std::int64_t>& missed);
    // Counts changes of who ever missed a step, by which the pieces are cut.
    int cuts() const { return cuts_; }

    // Changes the precision of the shadow (or drops it) in the middle of training; masters and moments stay as they
    // are.
    void set_shadow(std::optional<Dtype> dtype);
    void refresh_shadow();
    // Whose gradient lies at this place of the flat array.
    const Parameter& parameter_at(std::int64_t place) const;

  private:
    void adopt_gradients() const;
    void check_current() const;  // throws where another store has taken the parameters over
    std::vector<Parameter*> parameters_;
    std::vector<std::shared_ptr<Parameter>> owned_;  // the same: their model may be gone before the store
    std::vector<Segment> places_;
    std::vector<Segment> segments_;  // as last cut
    std::vector<bool> ever_missed_, cut_for_;
    int cuts_ = 0;
    Tensor missed_;
    Tensor weights_, shadow_, gradients_;
    std::vector<Tensor> moments_;
};

}  // namespace invar
