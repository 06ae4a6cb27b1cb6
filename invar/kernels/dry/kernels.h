// The kernels of a device that computes nothing: each notes its arithmetic and traffic (work.h), and takes the scratch
// memory that the real device takes, so that a run on it can be counted.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "invar/kernels/dry/work.h"
#include "invar/kernels/kernels.h"

namespace invar::dry {

class DryKernels final : public Kernels {
  public:
    explicit DryKernels(Device::Kind kind) : device_{kind, 0} {}

    void configure(const KernelOptions& options) override { options_ = options; }
    std::string description() const override { return "nothing is computed"; }

#define INVAR_KERNEL(result, name, parameters) result name parameters override;
#define INVAR_OPTIONAL_KERNEL(result, name, parameters) result name parameters override;
#include "invar/kernels/kernel_list.inc"

    void synchronize() override {}
    std::unique_ptr<Recording> record(const MemoryPool& pool, const std::function<void()>& work) override;
    std::unique_ptr<RawMemory> host_memory() override;
    std::unique_ptr<CopyQueue> copy_queue() override;

    const WorkList& work() const {
        return work_;
    }
    void forget_work() {
        work_.clear();
    }
    void set_phase(Phase phase) {
        phase_ = phase;
    }
    // What convolutions were seen to cost; others are reckoned. Must outlive this.
    void know(const ConvCosts& costs) {
        costs_ = &costs;
    }

  private:
    bool on_gpu() const {
        return !device_.is_cpu();
    }
    Work& note(std::string_view kernel, double bytes);
    Work& note(std::string_view kernel, std::initializer_list<const View*> views);
    // Takes the memory and gives it back, as a kernel does for the length of its call.
    void scratch(double bytes) const;
    // Sums down columns, on a GPU in one stage or two: takes what lies between and beside them, tells the launches.
    int sum_columns(double rows, double columns, int kinds, double beside = 0) const;
    void take_workspace();
    void multiply(std::string_view kernel, const View& a, const View& b, const View& out, bool accumulate,
                  const View& addend = {});
    void multiply_on_cpu(const View& a, const View& b, const View& out, bool accumulate) const;
    void convolve(std::string_view kernel, WorkKind kind, const ConvSpec& spec, Dtype dtype, double bytes, bool bias);
    void convolve_on_cpu(const ConvSpec& spec, const View& x, bool bias) const;
    void convolve_back_on_cpu(const ConvSpec& spec, const View& gy, bool gx, bool gw, bool gb) const;
    // As a product, over gathered pixels where they do not lie as one; false where it is none.
    bool multiply_pixels(const ConvSpec& spec, const View& x, const View& w, const View& y);
    bool multiply_data_gradient(const ConvSpec& spec, const View& gy, const View& w, const View& gx,
                                const View& pending);
    bool multiply_weight_gradient(const ConvSpec& spec, const View& x, const View& gy, const View& gw);
    double gather_pixels(const ConvSpec& spec, const View& x);

    Device device_;
    KernelOptions options_;
    Phase phase_ = Phase::forward;
    WorkList work_;
    std::optional<Storage> workspace_;  // what a GPU's products and convolutions work in
    std::set<std::string> timed_;       // products whose candidates were timed
    const ConvCosts* costs_ = nullptr;
};

}  // namespace invar::dry
