// Matrix products by cuBLASLt, in every layout that rank-3 views can have. They accumulate in FP32 (FP64 for f64);
// 16-bit operands may have an FP32 result.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "invar/core/error.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {

namespace {

void check_status(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
        fail("cuBLASLt: {} in {}", cublasLtGetStatusString(status), call);
}
#define INVAR_LT_CHECK(call) check_status((call), #call)

cublasLtHandle_t handle() {
    static const cublasLtHandle_t handle = [] {
        cublasLtHandle_t made = nullptr;
        INVAR_LT_CHECK(cublasLtCreate(&made));
        return made;
    }();
    return handle;
}

cudaDataType_t data_type(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64:
            return CUDA_R_64F;
        case Dtype::f32:
            return CUDA_R_32F;
        case Dtype::f16:
            return CUDA_R_16F;
        case Dtype::bf16:
            return CUDA_R_16BF;
        default:
            fail("matmul: the GPU does not multiply {}", name_of(dtype));
    }
}

// One matrix operand of a batch, as column-major cuBLASLt sees row-major memory: turned over.
struct Operand {
    bool transposed;       // its rows are the dense dimension
    std::int64_t leading;  // elements from one dense line to the next
    std::int64_t batch;    // elements from one matrix to the next
    int alignment;         // of every line, in bytes, as far as vector loads care
    auto operator<=>(const Operand&) const = default;
};

Operand operand(const View& v) {
    const std::int64_t rows = v.size[1], columns = v.size[2];
    const bool plain = v.stride[2] == 1 || columns == 1;
    Operand made{};
    made.transposed = !plain;
    made.leading = plain ? std::max(rows == 1 ? columns : v.stride[1], columns)
                         : std::max(columns == 1 ? rows : v.stride[2], rows);
    made.batch = v.size[0] > 1 ? v.stride[0] : 0;
    const std::uint64_t width = size_of(v.dtype);
    const std::uint64_t all = reinterpret_cast<std::uintptr_t>(v.data) | std::uint64_t(made.batch) * width | 16u;
    made.alignment = int(all & ~(all - 1));  // the lowest bit that is set: 16 at most
    return made;
}

// Everything that cuBLASLt's choice depends on.
struct Shape3 {
    Dtype in, out;
    bool tf32;
    bool timed;    // chosen by timing, or the first that is proposed
    int epilogue;  // a cublasLtEpilogue_t
    std::int64_t batch, m, n, k;
    Operand a, b, c;
    auto operator<=>(const Shape3&) const = default;
};

struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
    std::vector<cublasLtMatmulHeuristicResult_t> candidates;
    std::size_t chosen = 0;
    bool timed = false;
    bool wide = false;  // alpha and beta are double
};

struct Call {
    const void *left, *right;
    const void* addend;  // the result itself where it is added to
    void* result;
    const void* bias;  // read, or written where it is a gradient
    bool accumulate;
};

void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    INVAR_LT_CHECK(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value));
}

cublasStatus_t run(const Plan& plan, const Call& call, std::size_t candidate) {
    if (call.bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    const float factors[] = {1.0f, call.accumulate ? 1.0f : 0.0f};
    const double wide[] = {1.0, call.accumulate ? 1.0 : 0.0};
    const void* const alpha = plan.wide ? static_cast<const void*>(&wide[0]) : &factors[0];
    const void* const beta = plan.wide ? static_cast<const void*>(&wide[1]) : &factors[1];
    return cublasLtMatmul(handle(), plan.product, alpha, call.left, plan.left, call.right, plan.right, beta,
                          call.addend, plan.result, call.result, plan.result, &plan.candidates[candidate].algo,
                          workspace(), kWorkspaceBytes, stream());
}

cublasLtMatrixLayout_t layout(Dtype dtype, std::int64_t rows, std::int64_t columns, const Operand& operand,
                              std::int64_t batch) {
    cublasLtMatrixLayout_t made = nullptr;
    INVAR_LT_CHECK(cublasLtMatrixLayoutCreate(&made, data_type(dtype), std::uint64_t(rows), std::uint64_t(columns),
                                              operand.leading));
    const auto count = std::int32_t(batch);
    INVAR_LT_CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    INVAR_LT_CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &operand.batch,
                                                    sizeof operand.batch));
    return made;
}

cublasComputeType_t compute_type(const Shape3& shape) {
    if (shape.in == Dtype::f64) return CUBLAS_COMPUTE_64F;
    return shape.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// For sizes that do not suit tensor cores cuBLASLt cuts sums into parts, adds them, rounds the product to 16 bits, and
// only then adds the bias and rounds again (13.0, on an H200: an error of 19 times what one rounding costs).
bool rounds_twice(const cublasLtMatmulAlgo_t& algorithm, const Shape3& s) {
    constexpr int kCutsAndRounds = 24;
    if (s.epilogue != CUBLASLT_EPILOGUE_BIAS || !is_sixteen_bit(s.out)) return false;
    const auto attribute = [&](cublasLtMatmulAlgoConfigAttributes_t name) {
        std::int32_t value = 0;
        std::size_t written = 0;
        INVAR_LT_CHECK(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof value, &written));
        return value;
    };
    return attribute(CUBLASLT_ALGO_CONFIG_ID) == kCutsAndRounds && attribute(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

// Row-major out = a b is, column-major, out^T = b^T a^T: the operands change places, and memory is read as it lies.
Plan make_plan(const Shape3& s, const Call& call) {
    Plan plan;
    plan.wide = s.in == Dtype::f64;
    INVAR_LT_CHECK(cublasLtMatmulDescCreate(&plan.product, compute_type(s), plan.wide ? CUDA_R_64F : CUDA_R_32F));
    const cublasOperation_t left_op = s.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right_op = s.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, left_op);
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, right_op);
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, cublasLtEpilogue_t(s.epilogue));
    if (call.bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    plan.left = s.b.transposed ? layout(s.in, s.k, s.n, s.b, s.batch) : layout(s.in, s.n, s.k, s.b, s.batch);
    plan.right = s.a.transposed ? layout(s.in, s.m, s.k, s.a, s.batch) : layout(s.in, s.k, s.m, s.a, s.batch);
    plan.result = layout(s.out, s.n, s.m, s.c, s.batch);

    cublasLtMatmulPreference_t preference = nullptr;
    INVAR_LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        INVAR_LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Where a product is cut along its sums, the parts are kept and added in FP32: in a result of 16 bits each would be
    // rounded before.
    if (is_sixteen_bit(s.out))
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t(s.b.alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t(s.a.alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t(s.c.alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t(s.c.alignment));
    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), plan.product, plan.left, plan.right, plan.result, plan.result,
                                       preference, int(found.size()), found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) count = 0;
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& each = found[std::size_t(i)];
        if (each.state == CUBLAS_STATUS_SUCCESS && !rounds_twice(each.algo, s)) plan.candidates.push_back(each);
    }
    return plan;
}

// Runs every candidate a few times on the operands at hand and keeps the fastest. They write where the result will be,
// or, where that is added to, into memory that nobody reads.
void choose_by_timing(Plan& plan, Call call, std::size_t result_bytes) {
    const bool in_place = call.addend == call.result && call.accumulate;
    const Scratch result(in_place ? result_bytes : 0);
    if (in_place) call.addend = call.result = result.data();
    float best = 0;
    for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
        if (run(plan, call, i) != CUBLAS_STATUS_SUCCESS) continue;
        const float time = time_on_stream([&] { INVAR_LT_CHECK(run(plan, call, i)); });
        if (best == 0 || time < best) best = time, plan.chosen = i;
    }
    plan.timed = true;
}

// One plan for each shape, made once. Products come from one thread at a time, as all work of the stream does, but the
// map is guarded all the same.
Plan& plan_for(const Shape3& shape, const Call& call) {
    static std::mutex mutex;
    static auto* plans = new std::map<Shape3, Plan>;
    const std::lock_guard lock(mutex);
    const auto found = plans->find(shape);
    return found != plans->end() ? found->second : plans->emplace(shape, make_plan(shape, call)).first->second;
}

View transposed(View v) {
    std::swap(v.size[1], v.size[2]);
    std::swap(v.stride[1], v.stride[2]);
    return v;
}

View rows_of_bias(const View& bias, const View& out) {
    View rows = out;
    rows.data = bias.data;
    rows.dtype = bias.dtype;
    rows.stride[0] = rows.stride[1] = 0;
    rows.stride[2] = bias.stride[0];
    return rows;
}

bool is_aligned(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

Shape3 shape_of(const View& a, const View& b, const View& out, cublasLtEpilogue_t epilogue) {
    return {a.dtype,
            out.dtype,
            a.dtype == Dtype::f32 && Tf32Scope::on(),
            options().benchmark && !options().deterministic,
            int(epilogue),
            out.size[0],
            out.size[1],
            out.size[2],
            a.size[2],
            operand(a),
            operand(b),
            operand(out)};
}

void multiply(Plan& plan, const Shape3& shape, const Call& call) {
    if (!plan.timed && plan.candidates.size() > 1 && may_time_candidates()) {
        const std::int64_t elements = shape.c.batch * (shape.batch - 1) + shape.c.leading * shape.m;
        choose_by_timing(plan, call, std::size_t(elements) * size_of(shape.out));
    }
    INVAR_LT_CHECK(run(plan, call, plan.chosen));
}

bool is_plain(const View& vector) {
    return is_aligned(vector.data) && (vector.stride[0] == 1 || vector.size[0] == 1);
}

cublasLtEpilogue_t epilogue_for(const Epilogue& e) {
    if (e.row_sums) return CUBLASLT_EPILOGUE_BGRADB;  // of our left operand, which is cuBLASLt's right one
    return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// False, with nothing done, where cuBLASLt has no such epilogue.
bool multiply_with(const Epilogue& e, const View& a, const View& b, const View& out, bool accumulate) {
    if (out.numel() == 0 || a.size[2] == 0 || operand(out).transposed) return false;
    if (e.activation != Activation::none) {
        // In a pass of our own: cuBLASLt's ReLU makes 0 of NaN, and what goes wrong before it would never be seen; its
        // GELU reads what is not rounded yet, and would have other bits when it is made anew from what is kept.
        const View& product = e.before ? e.before : out;
        if (!multiply_with({.bias = e.bias}, a, b, product, accumulate)) return false;
        kernels().unary(unary_op(e.activation), product, out, {});
        return true;
    }
    if ((accumulate || e.addend) && (e.bias || e.row_sums)) return false;
    if (e.row_sums && (e.bias || out.size[0] != 1)) return false;
    if (e.bias && (e.bias.dtype != out.dtype || !is_plain(e.bias))) return false;
    // For sizes that do not come in eights there is such a product, but a slow one.
    const bool eights = out.size[1] % 8 == 0 && out.size[2] % 8 == 0 && a.size[2] % 8 == 0;
    if (e.row_sums && (e.row_sums.dtype != out.dtype || !is_plain(e.row_sums) || !eights)) return false;
    if (e.addend && operand(e.addend) != operand(out)) return false;
    const Shape3 shape = shape_of(a, b, out, epilogue_for(e));
    const void* const vector = e.row_sums ? e.row_sums.data : e.bias.data;
    const Call call{b.data, a.data, e.addend ? e.addend.data : out.data, out.data, vector, accumulate || e.addend};
    Plan& plan = plan_for(shape, call);
    if (plan.candidates.empty()) return false;
    multiply(plan, shape, call);
    return true;
}

}  // namespace

void CudaKernels::matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) {
    const Launch launch("matmul");
    if (out.numel() == 0) return;
    if (a.size[2] == 0) {
        if (bias)
            copy(rows_of_bias(bias, out), out);
        else if (!accumulate)
            fill(out, 0);
        return;
    }
    if (operand(out).transposed && !bias)
        return matmul(transposed(b), transposed(a), bias, transposed(out), accumulate);
    if (bias) {
        if (!accumulate && multiply_with({.bias = bias}, a, b, out, false)) return;
        copy(rows_of_bias(bias, out), out);  // the product is then added to the bias
        return matmul(a, b, View{}, out, true);
    }
    const Shape3 shape = shape_of(a, b, out, CUBLASLT_EPILOGUE_DEFAULT);
    const Call call{b.data, a.data, out.data, out.data, nullptr, accumulate};
    Plan& plan = plan_for(shape, call);
    check(!plan.candidates.empty(), "matmul: cuBLASLt has no way to multiply {} matrices {}x{} by {}x{} in {} to {}",
          shape.batch, shape.m, shape.k, shape.k, shape.n, name_of(shape.in), name_of(shape.out));
    multiply(plan, shape, call);
}

void CudaKernels::matmul_with(const Epilogue& epilogue, const View& a, const View& b, const View& out,
                              bool accumulate) {
    const Launch launch("matmul_with");
    if (!multiply_with(epilogue, a, b, out, accumulate)) Kernels::matmul_with(epilogue, a, b, out, accumulate);
}

}  // namespace invar::cuda
