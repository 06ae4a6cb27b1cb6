// How a ParameterStore is spread over ranks. The flat arrays are cut into buckets of whole parameters, each bucket into
// as many pieces as there are ranks; a rank's share is its piece of every bucket.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/dist/communicator.h"
#include "invar/dist/strategy.h"
#include "invar/kernels/specs.h"

namespace invar {

struct Sharding {
    Communicator* ranks = nullptr;  // nullptr: one process by itself
    Strategy strategy = Strategy::ddp;
    std::int64_t bucket_bytes = 25 << 20;  // of f32 gradients, at least
    Dtype wire = Dtype::f32;               // what gradients travel as
    bool recomputes = false;  // blocks, whose operations are recorded only when backward comes to them
    bool overlap = true;                   // send buckets while backward goes on

    bool spread() const { return ranks != nullptr && !ranks->alone(); }
    bool shares_moments() const { return spread() && strategy != Strategy::ddp; }
    bool shares_gradients() const { return spread() && strategy == Strategy::zero2; }
};

struct Bucket {
    std::int64_t begin, count;  // in the flat arrays
    std::int64_t piece;         // count of each rank's piece
    std::int64_t share;         // where this rank's piece lies in arrays that hold its share alone
    std::size_t first, last;    // its parameters: from, and up to
};

// What of flat segments is this rank's, in the places of its share. Those that stand still are in every rank's, with
// nothing to do where nothing of them is.
std::vector<Segment> share_of(const std::vector<Segment>& segments, const std::vector<Bucket>& buckets, int rank);

}  // namespace invar
