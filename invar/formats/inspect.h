// inspect: what each tensor of a file would suffer in smaller formats, and the power of two that would save
// it. The file is read once, by all threads, at the speed of the disk or of the memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/core/shape.h"
#include "invar/formats/format_tally.h"
#include "invar/formats/tensor_files.h"

namespace invar {

struct InspectedTensor {
    std::string name;
    Dtype dtype = Dtype::f32;
    Shape shape;
    Tally tally;  // of floating tensors
};

struct Inspection {
    std::vector<Dtype> formats;
    std::vector<InspectedTensor> tensors;  // in file order, files in the order given
    InspectedTensor total;                 // of all floating ones together, called "total"
    std::vector<LeftOut> left_out;         // of everything else
    std::uint64_t bytes = 0;               // of tensor data that was read
    double seconds = 0.0;
};

// threads: 0 for one a core.
Inspection inspect(const std::vector<std::filesystem::path>& files, const std::vector<Dtype>& formats, int threads = 0);

// A format as people call it ("fp16", "bf16", "e4m3", "fp8" for both of its kind), several with commas. UsageError.
std::vector<Dtype> parse_formats(const std::string& text);

// How a tensor fares in one format. Shares are of its finite values that are not zero.
struct Fate {
    double overflow = 0.0, subnormal = 0.0, vanish = 0.0;
    double bits = 0.0;                         // significant ones kept, on average; overflow and vanishing keep none
    double mean_error = 0.0, max_error = 0.0;  // relative, of what neither overflows nor vanishes
    int head_room = 0;                         // doublings until the largest value overflows; negative where it does
    bool empty = true;                         // nothing to say: no finite value but zero

    // Multiplied by 2^scale nothing would overflow, and as little as possible vanish or turn subnormal; 0 where that
    // would cost more values than it saves.
    int scale = 0;
    double lost_after = 0.0;  // share that would still be lost or subnormal; by exponents, so to within a power of two
    double lost() const { return overflow + vanish; }
};
Fate fate_of(const Tally& tally, std::size_t format, Dtype dtype);

}  // namespace invar
