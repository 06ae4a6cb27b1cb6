// A training step that a GPU repeats as a whole. The first steps on batches of a shape run operation by operation,
// while the libraries choose their algorithms; the next one is recorded, and from then on the recording is replayed. It
// computes the same bits. What cannot be recorded runs on as it did, and the reason is told.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "invar/train/setup.h"
#include "invar/train/step.h"

namespace invar {

class GraphedStep {
  public:
    using Note = std::function<void(const std::string&)>;
    // `record`: false leaves every step as it is. `note` is told why steps are not recorded.
    GraphedStep(Setup& setup, bool record, const ReportSlots& reports = {}, Note note = {});
    ~GraphedStep();

    // One step. The loss that is returned may be overwritten by the next one.
    Tensor operator()(std::span<const Batch> group);

    // Whether more steps on batches of this shape would change how they run.
    bool settled(std::span<const Batch> group) const;
    // Of the recording that the last step replayed: kernels, copies and the like. 0 where it was not a replay.
    std::int64_t parts() const { return parts_; }

  private:
    struct Form;
    struct Constants;
    Tensor run(std::span<const Batch> group);
    Tensor record(Form& form, std::span<const Batch> group);
    Tensor replay(Form& form, std::span<const Batch> group);
    Form* form_of(std::span<const Batch> group) const;
    void forget_what_changed();
    void give_up(const std::string& reason);

    Setup& setup_;
    ReportSlots reports_;
    Note note_;
    bool records_;
    bool overfull_ = false;  // and that was told
    std::int64_t parts_ = 0;
    std::unique_ptr<Constants> constants_;
    std::optional<MemoryPool> pool_;  // one for all: they never run at the same time
    std::vector<std::unique_ptr<Form>> forms_;
};

}  // namespace invar
