// What the threads of this process had of the processor, and how long they waited for it while others had it.
#pragma once

#include <string>
#include <string_view>

namespace invar {

struct CpuUse {
    double ran = 0.0;     // seconds, of all threads that are alive
    double waited = 0.0;  // seconds in which they could have run, and did not
    double others = 0.0;  // seconds that everything else on the machine had

    // Of the time in which they wanted to run, the share that they waited for others; NaN where nothing is known. They
    // also wait for each other, where a process has more threads than there are processors: that is not counted.
    double waited_share() const;
    CpuUse operator-(const CpuUse& earlier) const;
};
// Since the threads began. All zero where the system does not tell.
CpuUse cpu_use();

// What makes times of `who` worthless as a measure of speed: that others kept its threads waiting for more than a tenth
// of the time they could have run. "" where they did not, or where nothing is known.
std::string disturbance_of(double waited_share, std::string_view who);

}  // namespace invar
