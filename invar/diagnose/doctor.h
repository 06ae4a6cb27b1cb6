// What a machine can be trusted with: each format's conversions, products and convolutions on a device against f64,
// whether they repeat, its memory, and its speed beside what the hardware should give. In seconds, as data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/device.h"

namespace invar {

// One element of a result: what the device gave, what it should be, and how far from that it may be.
struct WorstElement {
    std::string operation;  // "linear, weight gradient"
    std::string shapes;     // "[65, 37] x [37, 129]"
    std::string place;      // "[3, 17]"; of a conversion, what was converted
    double got = 0, expected = 0, bound = 0;
    // The error in units of the bound; infinite where only one of the two is a number, or nothing is allowed.
    double share() const;
};

// All that one check has compared in one format.
struct ComparedValues {
    std::int64_t values = 0, wrong = 0;
    std::optional<WorstElement> worst;  // of all values, or of the wrong ones where there are any
    std::string problem;                // why the check could not be made
    bool ok() const { return wrong == 0 && problem.empty(); }
    ComparedValues& operator+=(const ComparedValues& other);
};

struct FormatHealth {
    std::string format;          // "bf16"; "tf32" is f32 in memory
    bool multiplies = true;      // false for FP8, which is stored and converted and nothing else
    std::string deadly;          // how a product or convolution in it ends the program; then neither was looked at
    ComparedValues conversions;  // every pattern and every tie of a small format: right to the bit
    ComparedValues products, convolutions;
    ComparedValues non_finite;  // NaN, Inf and sums that overflow, which must be seen in the result
    ComparedValues repeats;     // the same call again: the same bits
    // Whether operands below the smallest normal count in a product, where FP32's own sums could hold them.
    std::optional<bool> keeps_subnormals;
    bool native = false;         // the device multiplies this format itself, and does not widen it first
    double flops_per_s = 0;      // one large product; 0: not measured
    double flops_per_cycle = 0;  // of a CPU's core, by its instruction set; 0: not known
    double should_give = 0;      // FLOP/s that the hardware should reach: from these on a CPU, for a card that there is
                                 // a row for (plan/cards.h) what we reached on one like it; 0: not known

    struct Check {
        std::string_view name;
        const ComparedValues& values;
    };
    std::vector<Check> checks() const;  // by name, those that were made
    bool ok() const;
};

struct MemoryHealth {
    std::int64_t total = 0, free = 0;  // bytes; 0: not known
    std::int64_t tried = 0;            // bytes that were written and read back, twice, the second time inverted
    std::int64_t wrong = 0;            // 8-byte words that came back otherwise
    std::int64_t first_wrong = -1;     // where, in bytes from the block's start
    std::string problem;               // why the block could not be had
    bool ok() const { return wrong == 0 && problem.empty(); }
};

struct DeviceHealth {
    Device device;
    std::string name;            // "Intel(R) Xeon(R) Processor"
    std::string description;     // "AVX2, native BF16 (AMX)"
    int threads = 0, cores = 0;  // of the CPU: threads that compute, and the cores that they have; 0 on a GPU
    double clock = 0;            // of the CPU, in Hz, as the system says; 0: not known
    std::vector<FormatHealth> formats;
    MemoryHealth memory;
    double copy_per_s = 0, copy_should_give = 0;  // bytes read and written
    std::string disturbed;                        // why times are worth nothing; "" where they are
    bool ok() const;
};

struct DoctorOptions {
    std::uint64_t seed = 0;
    std::int64_t memory = std::int64_t(1) << 30;  // bytes to write and read back, at most; an eighth of what is free
    bool speed = true;                            // measure it
    std::function<void(std::string_view)> progress = {};  // told what is looked at next
    // Runs what may end the process, on a CPU, where it cannot do so, and says how it would; none: nobody tries.
    std::function<std::string(const std::function<void()>& work)> try_aside = {};
};

// Uses the kernels that this thread has for the device, a stand-in's too.
DeviceHealth examine(Device device, const DoctorOptions& options = {});

}  // namespace invar
