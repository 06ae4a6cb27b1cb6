// Ops whose results have one right answer, whole numbers, booleans and places: those that PyTorch 1.13 gave, where it
// has the dtype, in one table for every device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/ops/cases.h"

namespace invar::testing {

struct ValueCase {
    std::string name;             // the op's registered name, then '/' and what is special
    std::function<Tensor()> run;  // on case_device()
    Dtype dtype;
    Shape shape;
    std::vector<double> values;

    std::string op() const { return name.substr(0, name.find('/')); }
};

const std::vector<ValueCase>& value_cases();

// The part of the table that stands in exact_cases.cpp.
void add_exact_answers(std::vector<ValueCase>& all);

// What is wrong with a case's result, in one line; "" where nothing is.
std::string mismatch(const ValueCase& value_case);

}  // namespace invar::testing
