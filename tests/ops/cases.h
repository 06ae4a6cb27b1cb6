// One description of each op's use, for every test that goes over all ops: gradients, 16-bit accuracy, cast classes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "invar/core/cast_class.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {

struct CaseInput {
    Shape shape;
    double low = -1, high = 1;
    bool gradient = true;
};

struct OpCase {
    std::string name;  // the op's registered name, then '/' and what is special
    Function run;
    std::vector<CaseInput> inputs;
    // How much larger than the result (and than its gradient) are the terms that cancel in it: a rounding of the terms
    // shows in the result magnified by as much.
    double terms = 1;
    double gradient_terms = 1;
    std::optional<CastClass> cast = {};  // of pointwise ops; the others' stand in cast_classes_test.cpp

    std::string op() const { return name.substr(0, name.find('/')); }
};

const std::vector<OpCase>& all_cases();

// Where a case makes what it needs beside its inputs, indices for one; the CPU unless a test of another device says so.
Device& case_device();

// A case's inputs as leaves of this dtype. run() gets them through views of this layout: transposed, sliced or
// expanded.
struct Prepared {
    Tensors leaves;
    Function run;
};
Prepared prepare_case(const OpCase& op_case, Dtype dtype, Layout layout = Layout::dense);

}  // namespace invar::testing
