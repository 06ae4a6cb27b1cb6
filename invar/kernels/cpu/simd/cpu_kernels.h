// The CPU's kernels. This folder is compiled once for each instruction set (namespace INVAR_ISA) and the best one that
// the machine runs is picked at start-up: plain loops, vectorised by the compiler for that set.
#pragma once

#include "invar/kernels/kernels.h"

namespace invar::INVAR_ISA {

class CpuKernels final : public Kernels {
  public:
    void copy(const View& from, const View& to) override;
    void upload(void* device, const void* host, std::size_t bytes) override;
    void download(void* host, const void* device, std::size_t bytes) override;
    void fill(const View& out, double value) override;
    void uniform(const View& out, double low, double high, RngState rng) override;
    void normal(const View& out, double mean, double deviation, RngState rng) override;
    bool all_finite(const View& x) override;

    void unary(UnaryOp op, const View& x, const View& y, Scalars scalars) override;
    void unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars scalars) override;
    void binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars scalars) override;
    void binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga, const View& gb,
                         Scalars scalars) override;
    void where(const View& condition, const View& a, const View& b, const View& y) override;
    void dropout(const View& x, const View& y, double p, RngState rng) override;
    void add_into(const View& x, const View& y) override;

    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override;
    void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) override;
    void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                       const View& gw, const View& gb, bool accumulate, const View& y) override;

    void max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners) override;
    void max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx) override;
    void avg_pool(const PoolSpec& spec, const View& x, const View& y) override;
    void avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx) override;
    void upsample(const UpsampleSpec& spec, const View& x, const View& y) override;
    void upsample_backward(const UpsampleSpec& spec, const View& gy, const View& gx) override;

    void sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) override;
    void max(const Span3& span, const View& x, const View& y, const View& index) override;
    void softmax(const Span3& span, const View& x, const View& y, bool log) override;
    void softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log) override;
    void cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                       const View& kept) override;
    void cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target, const View& kept,
                                const View& glosses, const View& count, const View& glogits) override;
    void mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean,
                   const View& count) override;

    void layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean,
                    const View& rstd, double eps) override;
    void layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean, const View& rstd,
                             const View& gx, const View& ggamma, const View& gbeta) override;
    void batch_norm_stats(const View& x, const View& mean, const View& variance) override;
    void batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                    const View& y) override;
    void batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd, const View& gamma,
                             const View& gx, const View& ggamma, const View& gbeta, bool batch_statistics) override;

    void embedding(const View& table, const View& ids, const View& y) override;
    void embedding_backward(const View& gy, const View& ids, const View& gtable) override;
    void gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y) override;
    void scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index, const View& gx) override;

    void grad_stats(const View& gradients, StepState* state) override;
    void plan(const View& gradients, StepState* state, const ScaleState* scale, const ClipSpec& clip,
              const ScheduleSpec& schedule, const View& loss) override;
    void optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                        std::span<const OptimizerSpec> groups, const StepState* state) override;
    void conclude(const StepEnd& end, const View& loss) override;
    void scale_gradients(const View& gradients, float factor, float limit) override;

    void synchronize() override {}
};

}  // namespace invar::INVAR_ISA
