// What of a ParameterStore this rank writes to a checkpoint: its piece of every bucket, whether others hold it too or
// not, so that all ranks together write everything once.
#pragma once

#include <vector>

#include "invar/optim/parameter_store.h"

namespace invar {

struct StorePiece {
    std::size_t parameter;
    std::int64_t from;  // which of the parameter's elements the first one is
    Tensor values;      // a copy on the host, in the order of memory
};

// Of what lies like ParameterStore::own_weights(). Does not wait for other ranks; the copies are as the array was when
// it was called.
std::vector<StorePiece> copy_pieces(const ParameterStore& store, const Tensor& held);

}  // namespace invar
