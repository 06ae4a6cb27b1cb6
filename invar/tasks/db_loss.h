// What DBNet learns from: how well its probability map finds the shrunk texts, its threshold map their borders, and
// the binary map that both make, sigmoid(k (P - T)), the shrunk texts once more. In FP32 whatever surrounds it.
#pragma once

#include "invar/data/batch.h"

namespace invar {

// The weights are those of the authors' code; the paper has 1, 1 and 10, and the first loss for both maps.
struct DbLossOptions {
    double probability = 5;      // cross entropy, of hard negatives
    double binary = 1;           // Dice's
    double threshold = 10;       // L1, near the texts
    double k = 50;               // steepness of the binary map
    std::int64_t negatives = 3;  // at most so many for each positive
};

struct DbLoss {
    Tensor total;
    Tensor probability, binary, threshold;  // not weighted
};

// Logits [n, height, width]; the labels are the maps of the batch (data/text_batch.h).
DbLoss db_loss(const Tensor& probability, const Tensor& threshold, const Batch& batch,
               const DbLossOptions& options = {});

// The mean cross entropy over the positives, where mask and target are 1, and the largest ones of the negatives, at
// most `negatives` for each positive. Negatives that are equal to the least of those share what is left for them.
// 0 where nothing is positive. Nothing is read back from a device.
Tensor hard_negative_bce(const Tensor& logits, const Tensor& target, const Tensor& mask, std::int64_t negatives = 3);
// 1 - 2 |p t| / (|p| + |t|) within the mask; 1 where there is no target.
Tensor dice_loss(const Tensor& probabilities, const Tensor& target, const Tensor& mask);
// The mean of |p - t| within the mask; 0 where that is empty.
Tensor masked_l1(const Tensor& prediction, const Tensor& target, const Tensor& mask);

}  // namespace invar
