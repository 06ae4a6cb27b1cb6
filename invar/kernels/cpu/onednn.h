// What Invar takes from oneDNN: matrix products and convolutions in FP32, and in BF16 where the CPU has it natively.
// This file and its .cpp are the only ones that know oneDNN, whose C++ interface changed between versions 2 and 3.
#pragma once

#include <cstddef>

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar::onednn {

// Whether the CPU multiplies this 16-bit type itself (AVX512-BF16, AMX). Where not, 16-bit operands are widened first.
bool native(Dtype dtype);
const char* description();
// What a core can do in a cycle when it multiplies this type, by its instruction set: floating-point operations, two
// for a multiplication and its addition. Of a widened type that of f32; 0: not known.
double flops_per_cycle(Dtype dtype);

// One row-major product, C = A B + beta C, each of A and B optionally transposed.
struct Product {
    bool transpose_a, transpose_b;
    std::int64_t m, n, k;
    const float* a;
    std::int64_t lda;
    const float* b;
    std::int64_t ldb;
    float beta;
    float* c;
    std::int64_t ldc;
};
void sgemm(const Product& product);

// The same for rank-3 views of a native 16-bit type; the output is of that type or f32. A bias, dense [columns], may be
// absent.
void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate);

// Operands dense, of one dtype (f32, or a native one), but bias and weight gradients always f32.
void conv_forward(const ConvSpec& spec, Dtype dtype, const void* x, const void* w, const float* bias, void* y);
void conv_backward_data(const ConvSpec& spec, Dtype dtype, const void* gy, const void* w, void* gx);
void conv_backward_weights(const ConvSpec& spec, Dtype dtype, const void* x, const void* gy, float* gw, float* gb);

// The scratch memory that these take, for runs that are only counted.
enum class ConvGradient { none, data, weights };
std::size_t matmul_scratch(const View& a, const View& b, const View& bias, const View& out, bool accumulate);
std::size_t conv_scratch(const ConvSpec& spec, Dtype dtype, ConvGradient gradient, bool bias);

}  // namespace invar::onednn
