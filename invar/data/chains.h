// Rows of tokens made from the seed, for task=language without any file: behind each token comes, more often than not,
// the one that a fixed rule names.
#pragma once

#include <cstdint>

namespace invar {

struct ChainsOptions {
    std::int64_t size = 4096;
    std::int64_t length = 64;
    std::int64_t vocabulary = 64;
    double order = 0.8;
};

}  // namespace invar
