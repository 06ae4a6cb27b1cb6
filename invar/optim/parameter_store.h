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
    // Moves the parameters into the store: their values become windows of it. `group_of` has one entry a parameter,
    // `moments` is 0, 1 or 2.
    ParameterStore(std::vector<Parameter*> parameters, const std::vector<int>& group_of, int moments,
                   StoreOptions options);
    ~ParameterStore();
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    const std::vector<Segment>& segments() const { return segments_; }  // parameters of a group that lie side by side
    const std::vector<Segment>& places() const { return places_; }      // of each parameter
    FlatStore flat() const;
    Tensor weights() const { return weights_; }
    Tensor shadow() const { return shadow_; }
    Tensor gradients() const;  // with zeros where nothing was added since zero_gradients()
    // Parameter i's part of a moment.
    Tensor moment(int which, std::size_t i) const;
    int moments() const { return int(moments_.size()); }

    void zero_gradients();
    // Changes the precision of the shadow (or drops it) in the middle of training; masters and moments stay as they
    // are.
    void set_shadow(std::optional<Dtype> dtype);
    void refresh_shadow();
    // Whose gradient lies at this place of the flat array.
    const Parameter& parameter_at(std::int64_t place) const;
    // Every parameter still has its FP32 gradient here; throws naming the one that was replaced.
    void check_gradients() const;

  private:
    std::vector<Parameter*> parameters_;
    std::vector<Segment> places_;
    std::vector<Segment> segments_;
    Tensor weights_, shadow_, gradients_;
    std::vector<Tensor> moments_;
};

}  // namespace invar
