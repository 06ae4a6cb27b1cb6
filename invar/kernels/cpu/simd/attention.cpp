// Attention in blocks of queries: the weights of all pairs of positions never exist at once. Operands of 16 bits are
// widened first; a head's block is two products and a softmax between them, and a thread has a head at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/core/memory.h"
#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/exponential.h"

namespace invar::INVAR_ISA {
namespace {

constexpr std::int64_t kRows = 64;  // queries of a block

// A tensor [batch, heads, length, width] as C with dense widths: itself where it is that already, else a copy, or, of a
// result, a place that is copied back.
template <class C>
class Heads {
  public:
    Heads(Kernels& kernels, const View& original, bool is_result = false)
        : kernels_(kernels),
          original_(original),
          view_(original),
          storage_(bytes_for(original), Device::cpu(), Purpose::workspace) {
        if (!separate(original)) return;
        view_.data = storage_.data();
        view_.dtype = dtype_of<C>;
        for (std::int64_t d = 3, stride = 1; d >= 0; stride *= view_.size[d], --d) view_.stride[d] = stride;
        if (!is_result) kernels.copy(original_, view_);
    }
    C* at(std::int64_t b, std::int64_t h, std::int64_t t) const {
        return view_.as<C>() + b * view_.stride[0] + h * view_.stride[1] + t * view_.stride[2];
    }
    // From one position to the next.
    std::int64_t step() const { return std::max(view_.size[2] > 1 ? view_.stride[2] : 0, view_.size[3]); }
    void store() const {
        if (separate(original_)) kernels_.copy(view_, original_);
    }

  private:
    static bool separate(const View& v) {
        return v.dtype != dtype_of<C> || (v.size[3] > 1 && v.stride[3] != 1) ||
               (v.size[2] > 1 && v.stride[2] < v.size[3]);
    }
    static std::size_t bytes_for(const View& v) { return separate(v) ? std::size_t(v.numel()) * sizeof(C) : 0; }
    Kernels& kernels_;
    View original_, view_;
    Storage storage_;
};

// c = a b + beta c over rows of memory, each of a and b transposed or not.
void multiply(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
    if (m > 0 && n > 0) onednn::sgemm({ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc});
}
void multiply(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
              const double* b, std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
    for (std::int64_t i = 0; i < m; ++i) {
        double* const row = c + i * ldc;
        for (std::int64_t j = 0; j < n; ++j) row[j] = beta == 0 ? 0 : beta * row[j];
        for (std::int64_t l = 0; l < k; ++l) {
            const double x = ta ? a[l * lda + i] : a[i * lda + l];
            for (std::int64_t j = 0; j < n; ++j) row[j] += x * (tb ? b[j * ldb + l] : b[l * ldb + j]);
        }
    }
}

// One head's place in the tensors and the rule for its weights.
template <class C>
struct HeadRule {
    const AttentionSpec& spec;
    AttentionRule rule{spec};
    DropRule drop{spec.dropout};
    std::int64_t b, h;

    // Scores become what softmax takes: scaled, biased, and -inf where a key is not seen. Whether any is: scores that
    // are -inf themselves are no reason to give zeros.
    bool prepare(C* scores, std::int64_t q, std::int64_t n) const {
        const C scale = C(spec.scale), unseen = -std::numeric_limits<C>::infinity();
        for (std::int64_t k = 0; k < n; ++k) scores[k] *= scale;
        if (spec.bias)
            for (std::int64_t k = 0; k < n; ++k) scores[k] += rule.template added<C>(b, h, q, k);
        if (!rule.may_blind()) {
            for (std::int64_t k = spec.causal ? std::min(q + 1, n) : n; k < n; ++k) scores[k] = unseen;
            return true;
        }
        bool any = false;
        for (std::int64_t k = 0; k < n; ++k) {
            const bool sees = rule.sees(b, q, k);
            any = any || sees;
            if (!sees) scores[k] = unseen;
        }
        return any;
    }
    C share(std::int64_t q, std::int64_t k) const { return C(kept_share(drop, spec.rng, rule.place(b, h, q, k))); }
};

template <class C>
void forward_block(const HeadRule<C>& head, std::int64_t first, std::int64_t rows, C* scores, std::int64_t n,
                   C* largest, C* sums) {
    for (std::int64_t r = 0; r < rows; ++r) {
        C* const row = scores + r * n;
        const std::int64_t q = first + r;
        if (!head.prepare(row, q, n)) {
            largest[q] = 0, sums[q] = -1;
            std::fill_n(row, n, C(0));
            continue;
        }
        const C top = lane_max(row, n);
        double total = 0;
        for (std::int64_t k = 0; k < n; k += kBlock)
            total += exponentials(row + k, top, row + k, std::min(kBlock, n - k));
        largest[q] = top, sums[q] = C(total);
        const C factor = C(1.0 / total);
        for (std::int64_t k = 0; k < n; ++k) row[k] *= factor;
        if (head.spec.dropout > 0)
            for (std::int64_t k = 0; k < n; ++k) row[k] *= head.share(q, k);
    }
}

// From scores and the gradients of the weights: the weights as they met the values, and the gradients of the scores.
template <class C>
void backward_block(const HeadRule<C>& head, std::int64_t first, std::int64_t rows, C* scores, C* gradients,
                    std::int64_t n, const C* largest, const C* sums) {
    for (std::int64_t r = 0; r < rows; ++r) {
        C *const p = scores + r * n, *const g = gradients + r * n;
        const std::int64_t q = first + r;
        if (!head.prepare(p, q, n)) {
            std::fill_n(p, n, C(0));
            std::fill_n(g, n, C(0));
            continue;
        }
        const C factor = C(1.0 / double(sums[q])), top = largest[q];
        for (std::int64_t k = 0; k < n; ++k) p[k] = exponential(p[k] - top) * factor;
        if (head.spec.dropout > 0)
            for (std::int64_t k = 0; k < n; ++k) g[k] *= head.share(q, k);
        const C mean = C(lane_sum<C>(n, [p, g](std::int64_t k) { return p[k] * g[k]; }));
        const C scale = C(head.spec.scale);
        for (std::int64_t k = 0; k < n; ++k) g[k] = p[k] * (g[k] - mean) * scale;
        if (head.spec.dropout > 0)
            for (std::int64_t k = 0; k < n; ++k) p[k] *= head.share(q, k);
    }
}

template <class C>
struct Kept {
    C *largest, *sums;
    Kept(const View& kept, const AttentionSpec& spec, std::int64_t b, std::int64_t h)
        : largest(kept.as<C>() + (b * spec.heads + h) * spec.queries),
          sums(largest + spec.batch * spec.heads * spec.queries) {}
};

// f(item) for each: a thread each where there are enough of them; otherwise the products inside share the threads.
// Where there is little to multiply, waking the others costs more than it saves.
template <class F>
void share_out(const AttentionSpec& s, std::int64_t items, const F& f) {
    const std::int64_t products = s.batch * s.heads * s.queries * s.keys * (s.width + s.value_width);
#pragma omp parallel for schedule(static) if (items >= omp_get_max_threads() && products > 64 * kSerial)
    for (std::int64_t i = 0; i < items; ++i) f(i);
}

template <class C>
void forward(Kernels& kernels, const AttentionSpec& s, const View& q_view, const View& k_view, const View& v_view,
             const View& y_view, const View& kept) {
    const Heads<C> q(kernels, q_view), k(kernels, k_view), v(kernels, v_view), y(kernels, y_view, true);
    const std::int64_t blocks = divide_up(s.queries, kRows);
    share_out(s, s.batch * s.heads * blocks, [&](std::int64_t item) {
        const std::int64_t block = item % blocks, h = item / blocks % s.heads, b = item / blocks / s.heads;
        const std::int64_t first = block * kRows, rows = std::min(kRows, s.queries - first);
        const std::int64_t n = s.keys_before(first + rows), kv = h / s.group();
        const Storage scratch(std::size_t(rows * n) * sizeof(C), Device::cpu(), Purpose::workspace);
        C* const scores = static_cast<C*>(scratch.data());
        multiply(false, true, rows, n, s.width, q.at(b, h, first), q.step(), k.at(b, kv, 0), k.step(), C(0), scores, n);
        const Kept<C> row(kept, s, b, h);
        forward_block(HeadRule<C>{.spec = s, .b = b, .h = h}, first, rows, scores, n, row.largest, row.sums);
        multiply(false, false, rows, s.value_width, n, scores, n, v.at(b, kv, 0), v.step(), C(0), y.at(b, h, first),
                 y.step());
    });
    y.store();
}

template <class C>
void backward(Kernels& kernels, const AttentionSpec& s, const View& q_view, const View& k_view, const View& v_view,
              const View& kept, const View& gy_view, const View& gq_view, const View& gk_view, const View& gv_view) {
    const Heads<C> q(kernels, q_view), k(kernels, k_view), v(kernels, v_view), gy(kernels, gy_view);
    const Heads<C> gq(kernels, gq_view, true), gk(kernels, gk_view, true), gv(kernels, gv_view, true);
    share_out(s, s.batch * s.kv_heads, [&](std::int64_t item) {
        const std::int64_t b = item / s.kv_heads, kv = item % s.kv_heads;
        const Storage scratch(std::size_t(2 * kRows * s.keys) * sizeof(C), Device::cpu(), Purpose::workspace);
        C *const p = static_cast<C*>(scratch.data()), *const g = p + kRows * s.keys;
        for (std::int64_t t = 0; t < s.keys; ++t) {
            std::fill_n(gk.at(b, kv, t), s.width, C(0));
            std::fill_n(gv.at(b, kv, t), s.value_width, C(0));
        }
        for (std::int64_t h = kv * s.group(); h < (kv + 1) * s.group(); ++h)
            for (std::int64_t first = 0; first < s.queries; first += kRows) {
                const std::int64_t rows = std::min(kRows, s.queries - first), n = s.keys_before(first + rows);
                multiply(false, true, rows, n, s.width, q.at(b, h, first), q.step(), k.at(b, kv, 0), k.step(), C(0), p,
                         n);
                multiply(false, true, rows, n, s.value_width, gy.at(b, h, first), gy.step(), v.at(b, kv, 0), v.step(),
                         C(0), g, n);
                const Kept<C> row(kept, s, b, h);
                backward_block(HeadRule<C>{.spec = s, .b = b, .h = h}, first, rows, p, g, n, row.largest, row.sums);
                multiply(true, false, n, s.value_width, rows, p, n, gy.at(b, h, first), gy.step(), C(1),
                         gv.at(b, kv, 0), gv.step());
                multiply(true, false, n, s.width, rows, g, n, q.at(b, h, first), q.step(), C(1), gk.at(b, kv, 0),
                         gk.step());
                multiply(false, false, rows, s.width, n, g, n, k.at(b, kv, 0), k.step(), C(0), gq.at(b, h, first),
                         gq.step());
            }
    });
    for (const Heads<C>* result : {&gq, &gk, &gv}) result->store();
}

}  // namespace

void CpuKernels::attention(const AttentionSpec& spec, const View& q, const View& k, const View& v, const View& y,
                           const View& kept) {
    compute_as(q.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(*this, spec, q, k, v, y, kept); });
}

void CpuKernels::attention_backward(const AttentionSpec& spec, const View& q, const View& k, const View& v, const View&,
                                    const View& kept, const View& gy, const View& gq, const View& gk, const View& gv) {
    compute_as(q.dtype,
               [&](auto tag) { backward<typename decltype(tag)::type>(*this, spec, q, k, v, kept, gy, gq, gk, gv); });
}

}  // namespace invar::INVAR_ISA
