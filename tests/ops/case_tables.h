// The parts of the table of cases that stand in files of their own.
#pragma once

#include "tests/ops/cases.h"

namespace invar::testing {

// Whole numbers where a case's tensors are.
Tensor indices(const std::vector<std::int64_t>& values, const Shape& shape);

// What transformers and other deep nets are made of: norms, layers of one input, attention, positions.
void add_layers(std::vector<OpCase>& all);

// The forms of windows, padding, resizing and reductions that vision models use.
void add_vision(std::vector<OpCase>& all);

}  // namespace invar::testing
