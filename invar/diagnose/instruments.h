// Instruments: watchers that tally what passes through each module. One learns which values a candidate precision would
// hold in its low format; the other tallies those values as FP32 computes them, before any rounding has spoilt them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "invar/diagnose/finding.h"
#include "invar/formats/format_tally.h"

namespace invar {

// Which tensors of which op are in a low format. Casts are left out: they come and go with the precision, all others
// run in the same order in each.
class FormatMap : public OpWatcher {
  public:
    struct Op {
        std::string module, name;
        bool result = false;
        std::vector<bool> inputs;
        bool incoming = false;  // gradients, likewise
        std::vector<bool> outgoing;
    };
    void forward(const ForwardRun& run) override;
    void backward(const BackwardRun& run) override;
    std::vector<Op> ops;

  private:
    std::unordered_map<const Node*, std::size_t> numbers_;
};

// One of the tensors that an op is given or makes, over all steps.
struct PassedTensor {
    std::size_t op = 0;  // its number
    std::string what;    // "the result of linear"
    Tally tally{1};
};

// One direction of one module.
struct Passage {
    Tally all{1};                       // everything, for extremes and exponents
    Tally low{1};                       // what the candidate holds in its format, for shares
    std::vector<PassedTensor> tensors;  // of that, each by itself: a wide one must not hide one that is gone
    void add(const Passage& other);
    void add_low(const PassedTensor& tensor);
};

struct LayerPassages {
    std::string module;  // "" is the model itself
    Passage forward, backward;
    bool ran_backward = false;
};

// Adds up one step (or more) by module, in the order in which the modules first run.
class Instruments : public OpWatcher {
  public:
    Instruments(const FormatMap& map, Dtype format) : map_(map), format_(format) {}
    void forward(const ForwardRun& run) override;
    void backward(const BackwardRun& run) override;
    // Begins another step with the same sequence of ops.
    void restart() { next_ = 0, numbers_.clear(); }
    std::vector<LayerPassages> layers;

  private:
    LayerPassages& layer(const std::string& module);
    void tally(const Tensor& tensor, bool low, std::size_t op, const std::string& what, Passage& passage) const;
    const FormatMap::Op* op(std::size_t number, const std::string& module, const char* name) const;

    const FormatMap& map_;
    Dtype format_;
    std::size_t next_ = 0;
    std::unordered_map<const Node*, std::size_t> numbers_;
};

}  // namespace invar
