// Signals as people expect them: Ctrl-C, SIGTERM (kill, Slurm, systemd) and SIGHUP (the terminal went away) ask a run
// to save and stop; what was ignored when we were started, as nohup has it, stays ignored.
#pragma once

#include "invar/io/watch.h"

namespace invar::cli {

// Call this once at the start: a reader that leaves and a limit on file sizes (`ulimit -f`) become errors of the write
// that met them, with a message, where by default they kill.
void let_writes_fail();

// Call this once at the start, before there is any other thread: from then on signals reach a thread that does nothing
// else, and no handler runs on the stack of one that computes. Those that end us take our temporary folders along. A
// handler inside one of oneDNN's products was seen to damage the heap.
void take_signals_aside();

// While it lives, the first signal asks the run to save and stop; a second SIGINT or SIGTERM, half a second later or
// more, kills as usual.
class StopOnSignal {
  public:
    StopOnSignal();
    ~StopOnSignal();
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;
    // One that another rank got, where this one got none.
    static void adopt(int number);
    static bool requested();
    static const char* name();  // "SIGTERM"; only where one came
    static int exit_code();     // 128 + its number, as shells have it: 130 after Ctrl-C
};

// For commands that write one file or folder: while it lives, a signal ends them by an error between two writes, so
// that unwinding takes away what is not whole.
class StopBetweenWrites {
  public:
    explicit StopBetweenWrites(int& exit_code);

  private:
    StopOnSignal signals_;
    IoWatch watch_;
};

}  // namespace invar::cli
