// Callback: acts on a run while it is trained. It is called at the moments below, with a handle through which it can
// stop the run, save a checkpoint or change the learning rate. What it keeps is part of every checkpoint, so that a run
// that was killed and resumed ends with the same bytes.
#pragma once

#include <nlohmann/json.hpp>

#include "invar/io/checkpoint.h"
#include "invar/train/in_flight.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"

namespace invar {

struct RunSummary;

// What a callback may do. All of it takes effect once every callback has been called for the moment at hand.
class RunHandle {
  public:
    virtual const Setup& run_setup() const = 0;
    virtual const Progress& progress() const = 0;
    virtual const CheckpointFolder& checkpoints() const = 0;
    // Ends the run as one that finished: with a checkpoint, a validation and a summary that gives this reason. It is
    // for the callback to say so again, in on_train_start, where a resumed run should not go on either.
    virtual void stop(const std::string& reason) = 0;
    // A checkpoint of the step at hand, where there is none yet.
    virtual void save_checkpoint() = 0;
    // Of the first group, before the schedule's factor. Setting it changes all groups by the same factor.
    virtual double learning_rate() const = 0;
    virtual void set_learning_rate(double rate) = 0;
    virtual void note(const std::string& line) = 0;  // for the observer

  protected:
    ~RunHandle() = default;
};

class Callback {
  public:
    virtual ~Callback() = default;
    // What its state is called in a checkpoint; no two callbacks of a run have the same.
    virtual std::string name() const = 0;
    // When it is given to a trainer: the place to refuse what cannot work, by a UsageError.
    virtual void setup(const Setup&) {}

    // Before the first step of this process, and after a recovery went back to a checkpoint.
    virtual void on_train_start(RunHandle&) {}
    // After every so many steps; 0: never. The run waits for the device then, so that what is decided does not depend
    // on how far ahead the host was.
    virtual std::int64_t every_n_steps() const { return 0; }
    virtual void on_step_end(RunHandle&, const ReportedStep&) {}
    virtual void on_validation_end(RunHandle&, const ValidationMetrics&) {}
    virtual void on_epoch_end(RunHandle&) {}
    // When the file is there, which is some steps after the one that it is of (trainer.async_checkpoint), before the
    // next one is begun and before the run ends.
    virtual void on_checkpoint(RunHandle&, const std::filesystem::path&) {}

    virtual nlohmann::json state_dict() const { return nlohmann::json::object(); }
    virtual void load_state_dict(const nlohmann::json&) {}
    // Steps whose checkpoints must stay, however old they are.
    virtual std::vector<std::int64_t> kept_checkpoints() const { return {}; }
    // Adds what it has to say of the run as a whole.
    virtual void add_to(RunSummary&) const {}
};

}  // namespace invar
