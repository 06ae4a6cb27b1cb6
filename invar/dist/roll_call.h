// Who of the ranks has come to be joined, before there is anything to ask them by: each listens under its own name on
// its machine, and whoever waits in vain can see who of that machine does not, or is stopped. Nothing is left behind.
#pragma once

#include <set>
#include <string>

#include "invar/dist/launcher.h"

namespace invar {

class RollCall {
  public:
    // This rank is here, for as long as this lives.
    explicit RollCall(const Launch& launch);
    ~RollCall();
    RollCall(const RollCall&) = delete;
    RollCall& operator=(const RollCall&) = delete;

    struct Missing {
        std::string who;       // "rank 1 on host n7 is stopped (process 4711)"; "" where all of this machine are here
        bool stopped = false;  // there is nothing to wait for ...
        bool ended = false;    // ... unless those who have gone were joined
        int first_here = 0;    // of the ranks that came, on this machine
        bool all_before_lost = false;  // who would speak is stopped, or was never seen
    };
    Missing missing();
    // Remembers who is here now: who was, and is no longer, has ended.
    void look();

  private:
    const Launch launch_;
    int socket_ = -1;
    std::set<int> seen_;
};

// Whether a rank on this machine is here and waits for the others.
bool waits_to_be_joined(int rank);

std::string host_name();

}  // namespace invar
