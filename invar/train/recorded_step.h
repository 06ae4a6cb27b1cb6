// RecordedStep: a step that somebody wrote as a function, repeated by a GPU as a whole. The first steps on batches of a
// shape run operation by operation, while the libraries choose their algorithms; the next one is recorded, and from then
// on the recording is replayed. It computes the same bits. What cannot be recorded runs on as it did, and the reason is
// told. On the CPU the function runs as it is. Ranks that train together all run a step, or all record, or all replay
// what they recorded together: what they exchange is part of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "invar/data/batch.h"

namespace invar {

struct RecordOptions {
    bool record = true;                                // false leaves every step as it is
    std::function<void(const std::string&)> note = {};  // is told why steps are not recorded
};

class RecordedStep {
  public:
    // Everything of a step on these batches: zero_grad, forward, backward, update. It must not read values of the device
    // back. Modes, precisions and freezing of modules, rates, schedules and the options of a scaler may change between
    // steps: a new recording is made. What else the function reads on the host is fixed in a recording until forget().
    // The objects that it uses must outlive this one.
    using Function = std::function<Tensor(std::span<const Batch> group)>;
    RecordedStep(Device device, Function step, RecordOptions options = {});
    ~RecordedStep();

    // One step; what the function returned, which the next step may overwrite.
    Tensor operator()(std::span<const Batch> group);
    Tensor operator()(const Batch& batch) { return (*this)(std::span(&batch, 1)); }
    // Records anew, after something that the function reads has changed.
    void forget();

    // Whether more steps on batches of this shape would change how they run.
    bool settled(std::span<const Batch> group) const;
    // Of the recording that the last step replayed: kernels, copies and the like. 0 where it was not a replay.
    std::int64_t parts() const { return parts_; }
    // Why steps are not recorded; "" where they are, or are going to be.
    const std::string& why_not() const { return why_not_; }

  private:
    struct Form;
    enum class Way { run, record, replay };
    Way agree(Way way, const Form* form) const;
    Tensor record(Form& form, std::span<const Batch> group);
    Tensor replay(Form& form, std::span<const Batch> group);
    Form* form_of(std::span<const Batch> group) const;
    void forget_what_changed();
    void give_up(const std::string& reason);

    Device device_;
    Function step_;
    RecordOptions options_;
    std::string why_not_;
    bool overfull_ = false;  // and that was told
    int recorded_ = 0;       // recordings so far, as many on every rank
    std::int64_t parts_ = 0;
    std::optional<MemoryPool> pool_;  // one for all: they never run at the same time
    std::vector<std::unique_ptr<Form>> forms_;
};

}  // namespace invar
