// Counts the floating-point operations of products and convolutions where they are made, for those who hold them
// against time. A multiplication and its addition are two; nothing else of a step weighs beside them.
#pragma once

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar {

// What this thread's products come to until the end of a scope; scopes nest.
class FlopCount {
  public:
    FlopCount();
    ~FlopCount();
    FlopCount(const FlopCount&) = delete;
    FlopCount& operator=(const FlopCount&) = delete;
    double count() const { return count_; }

  private:
    friend void count_flops(double);
    double count_ = 0;
    FlopCount* outer_;
};

// Nothing counts until the end of a scope: what is computed a second time is no work that was asked for.
class UncountedFlops {
  public:
    UncountedFlops();
    ~UncountedFlops();
    UncountedFlops(const UncountedFlops&) = delete;
    UncountedFlops& operator=(const UncountedFlops&) = delete;

  private:
    FlopCount* outer_;
};

void count_flops(double flops);

// out [batch, m, n] as the product of a [batch, m, k] and anything.
inline void count_product(const View& a, const View& out) {
    count_flops(2.0 * double(out.numel()) * double(a.size[2]));
}
// Forward, and the gradients of input and weight, take the same number each.
inline void count_convolution(const ConvSpec& s) {
    const double outputs = double(s.batch) * double(s.out_h) * double(s.out_w) * double(s.out_c);
    count_flops(2.0 * outputs * double(s.k_h) * double(s.k_w) * double(s.in_c) / double(s.groups));
}

}  // namespace invar
