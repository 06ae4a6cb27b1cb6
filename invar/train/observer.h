// Observer: is told what happens in a run; the program's progress line is one. Nothing here can change the run.
#pragma once

#include "invar/train/in_flight.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"

namespace invar {

class Observer {
  public:
    virtual ~Observer() = default;
    virtual void started(const Setup&, const RunFolder&, const Progress&) {}
    // After every step that was given to the device, which may still be busy with it.
    virtual void step_launched(const Progress&, std::int64_t /*total_steps*/) {}
    // Of every step, when the device has reported it; then, of those that are logged.
    virtual void step_reported(const ReportedStep&) {}
    virtual void step_logged(const StepMetrics&) {}
    virtual void validated(const ValidationMetrics&) {}
    virtual void noted(const std::string&) {}  // one line worth showing
    virtual void alerted(const Alert& alert) { noted(alert.message); }
};

}  // namespace invar
