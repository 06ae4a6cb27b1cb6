// Mixup: each sample of a batch mixed with another one, and their classes by the same shares ("mixup: Beyond Empirical
// Risk Minimization", 2017).
#pragma once

#include <cstdint>

#include "invar/data/batch.h"

namespace invar {

struct MixupOptions {
    double alpha = 0.2;  // shares come from Beta(alpha, alpha): 0.2 mostly leaves samples alone, 1 is any share
    std::int64_t classes = 0;
};

// Mixes x, f32 or u8, of each sample with that of the next one, by one share for the whole batch. The batch gets
// `targets`, f32 [n, classes], a probability for each class; y stays the label of what a sample was made of first. What
// is chosen follows from seed, epoch and the number of the batch in it.
void mix_pairs(Batch& batch, const MixupOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t number);

}  // namespace invar
