// Recorded work as a CUDA graph. What changes from replay to replay lives in device memory; random numbers start at a
// counter there, which each replay moves on.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "invar/core/rng.h"
#include "invar/kernels/kernels.h"

namespace invar::cuda {

std::unique_ptr<Recording> record(const MemoryPool& pool, const std::function<void()>& work);

// The random numbers of the work that is being recorded, counted from where it began.
class RecordedRandom {
  public:
    RecordedRandom();
    std::uint64_t* counter() const { return static_cast<std::uint64_t*>(storage_.data()); }
    RngState start() const { return start_; }
    // A place in the sequence as a distance from the counter, where that will be when the device gets here.
    RngState from_counter(RngState rng) const { return {rng.seed, rng.offset - start_.offset - taken_}; }
    // What the generator was moved on since the last call: for whoever moves the counter on.
    std::uint64_t take_drawn();

  private:
    Storage storage_;
    RngState start_;
    std::uint64_t taken_ = 0;
};
void advance(std::uint64_t* counter, std::uint64_t by, cudaStream_t stream);  // *counter += by, on the device
RecordedRandom* recorded_random();                                            // nullptr where nothing is being recorded

// Throws where work is being recorded: `what` cannot be part of it.
void refuse_recording(const char* what);

}  // namespace invar::cuda
