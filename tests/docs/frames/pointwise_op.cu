// The same struct in what a GPU computes in: Brief for 16-bit tensors, float, double.
#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/pointwise.h"

using namespace ::invar;
using namespace ::invar::pointwise;

// BLOCK

template <class C>
__device__ void run_in(double* values) {
    const C x(values[0]);
    values[1] += double(float(Softsign::forward(x, Scalars{})));
    values[2] += double(float(Softsign::backward(C(1), x, Scalars{})));
}

__global__ void run(double* values) {
    run_in<::invar::cuda::Brief>(values);
    run_in<float>(values);
    run_in<double>(values);
}
