// Kernels: what a device must be able to do, as one interface, whose kernels stand in kernel_list.inc. A device is a
// folder below this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "invar/core/device.h"
#include "invar/core/memory.h"
#include "invar/core/rng.h"
#include "invar/core/view.h"
#include "invar/kernels/attention.h"
#include "invar/kernels/specs.h"
#include "invar/kernels/step.h"

namespace invar {

enum class UnaryOp : std::uint8_t;  // pointwise.h, which changes with every op
enum class BinaryOp : std::uint8_t;

// How a device that has several ways to compute the same thing chooses among them.
struct KernelOptions {
    bool benchmark = true;      // try them and keep the fastest ...
    bool deterministic = true;  // ... but only where the choice cannot change from run to run: same seed, same bytes
};

// Work that a device was shown once and can repeat as a whole, without the host going through it again.
class Recording {
  public:
    virtual ~Recording() = default;
    // Once more, with the values that its tensors hold now. Random numbers go on from where the default generator is,
    // and move it on, as if the host had done the work.
    virtual void replay() = 0;
    virtual std::int64_t parts() const = 0;  // kernels, copies and the like in it
};

// Copies to a device that run beside its computations.
class CopyQueue {
  public:
    virtual ~CopyQueue() = default;  // waits for its copies
    // Begins when everything given to the device so far is done; does not hold up what is given to it later.
    virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
    // Stands for all uploads so far. Tickets count up by one.
    virtual std::uint64_t ticket() = 0;
    virtual void join(std::uint64_t ticket) = 0;  // what is given to the device from now on waits for those uploads
    virtual bool done(std::uint64_t ticket) = 0;
    virtual void wait(std::uint64_t ticket) = 0;
};

class Kernels {
  public:
    virtual ~Kernels() = default;

    virtual void configure(const KernelOptions&) {}
    // What the device is, for start-up lines, and how many bytes of its memory are taken by anyone; 0: not known.
    virtual std::string description() const { return {}; }
    virtual std::int64_t memory_used() const { return 0; }

#define INVAR_KERNEL(result, name, parameters) virtual result name parameters = 0;
#define INVAR_OPTIONAL_KERNEL(result, name, parameters) virtual result name parameters;
#include "invar/kernels/kernel_list.inc"

    // --- time: a device may be behind what it was given ---
    virtual void synchronize() = 0;
    // Whether all that was given is done; throws what went wrong.
    virtual bool idle() {
        return true;
    }
    // Has `work` recorded, and runs the recording for the first time. nullptr, with nothing done, on a device that is
    // never behind. Throws, with nothing run, where the work cannot be recorded, such as for an op that reads a value
    // back. What it allocates comes from `pool` and stays reserved while the pool lives.
    virtual std::unique_ptr<Recording> record(const MemoryPool& /*pool*/, const std::function<void()>& /*work*/) {
        return nullptr;
    }
    // Both nullptr where the device's memory is the host's: host memory for fast copies, which the device can also
    // write, and a queue for them.
    virtual std::unique_ptr<RawMemory> host_memory() {
        return nullptr;
    }
    virtual std::unique_ptr<CopyQueue> copy_queue() {
        return nullptr;
    }
};

// The kernels of a device; throws where the build or the machine has no such device.
Kernels& kernels_for(Device device);

// How many threads CPU kernels use. 0 asks for OMP_NUM_THREADS where it is set, otherwise for one per core that this
// process may use: those of its affinity, and no more than its control group has a quota for (threads.h).
void set_threads(int count);
int threads();
// What the CPU offers, for start-up lines: "AVX2, 16-bit widened to FP32" or "AMX, native BF16".
const char* cpu_description();

}  // namespace invar
