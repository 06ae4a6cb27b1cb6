// What reductions share: which dimensions one takes away, and sums over them. None records.
#pragma once

#include <array>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"

namespace invar::ops {

// Which dimensions a reduction takes away; where none are named, all.
struct Axes {
    Shape from;
    std::array<bool, kMaxRank> taken{};

    Axes(const char* op, const Tensor& x, const std::vector<int>& dims);
    std::int64_t count() const;      // of what is reduced to one
    Shape kept(bool keepdim) const;  // the result's shape
    // A result or its gradient, dense, in the shape of what was reduced.
    Tensor spread(const Tensor& reduced) const;

    // Calls f(span, shape) for each run of neighbouring axes, the last one first: the run as the middle of a dense
    // tensor from which the runs before it were taken, and the shape without it, all dimensions kept.
    template <class F>
    void each_run(const F& f) const {
        Shape shape = from;
        for (int end = from.rank(); end > 0;) {
            if (!taken[std::size_t(end - 1)]) {
                --end;
                continue;
            }
            int begin = end - 1;
            while (begin > 0 && taken[std::size_t(begin - 1)]) --begin;
            Span3 span;
            for (int i = 0; i < from.rank(); ++i) {
                (i < begin ? span.outer : i < end ? span.n : span.inner) *= shape[i];
                if (i >= begin && i < end) shape[i] = 1;
            }
            f(span, shape);
            end = begin;
        }
    }
};

void check_floating_reduction(const char* op, const Tensor& x);

// The sum over the taken axes, divided by `divisor`, in `dtype`, all dimensions kept.
Tensor sum_over(const Axes& axes, const Tensor& x, double divisor, Dtype dtype);

// A total as the result: in this shape and dtype.
Tensor finished(const Tensor& total, const Shape& shape, Dtype dtype);

}  // namespace invar::ops
