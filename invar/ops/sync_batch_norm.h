// Batch norms over ranks that train together: statistics and gradients are those of the samples of all of them. Every
// rank comes to every norm, forward and backward, in the same order.
#pragma once

#include "invar/core/tensor.h"
#include "invar/dist/communicator.h"

namespace invar::ops {

// While one lives, batch norms that train on this thread are those of all these ranks; nullptr, or a rank that is
// alone: each by itself. Backward has to run inside it too, since it may run a region again.
class SyncBatchNorm {
  public:
    explicit SyncBatchNorm(Communicator* ranks);
    ~SyncBatchNorm();
    SyncBatchNorm(const SyncBatchNorm&) = delete;
    SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;
    static Communicator* ranks();

    // While one lives, the samples of this rank count for nothing: they only keep it in step with the others.
    class Spare {
      public:
        explicit Spare(bool spare);
        ~Spare();
        Spare(const Spare&) = delete;
        Spare& operator=(const Spare&) = delete;
        static bool here();

      private:
        bool previous_;
    };

  private:
    Communicator* previous_;
};

// A batch norm of several ranks, from its forward pass to its backward pass.
struct BatchOfRanks {
    Communicator* ranks = nullptr;
    bool spare = false;
    Tensor parts = {};  // what each rank has told of its rows; known after take_statistics
    explicit operator bool() const { return ranks != nullptr; }
    static BatchOfRanks here() { return {SyncBatchNorm::ranks(), SyncBatchNorm::Spare::here()}; }

    struct Running {
        Tensor mean, var;  // either may be absent
        double momentum;
    };
    // Of all rows of x [rows, channels], on every rank the same bits: mean, and 1 / sqrt(biased variance + eps).
    void take_statistics(const Tensor& x, const Tensor& mean, const Tensor& rstd, double eps, const Running& running);
    // From `gx`, the gradient of x as if the statistics were constants, and this rank's gradients of gamma and beta:
    // the gradient with what flows through the statistics of all ranks.
    Tensor input_gradient(const Tensor& gx, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                          const Tensor& gamma, const Tensor& ggamma, const Tensor& gbeta) const;
};

}  // namespace invar::ops
