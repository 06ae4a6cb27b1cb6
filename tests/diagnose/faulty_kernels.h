// The CPU's kernels, as far as an examination calls them, for tests that spoil one of them: everything else refuses.
#pragma once

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar::testing {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
class RefusingKernels : public Kernels {
  public:
#define INVAR_KERNEL(result, name, parameters)          \
    result name parameters override {                   \
        fail("{}: no kernel of an examination", #name); \
    }
#define INVAR_OPTIONAL_KERNEL(result, name, parameters)
#include "invar/kernels/kernel_list.inc"

    void synchronize() override {}
};
#pragma GCC diagnostic pop

class FaultyKernels : public RefusingKernels {
  public:
    explicit FaultyKernels(Kernels& cpu = kernels_for(Device::cpu())) : cpu_(cpu) {}

    void copy(const View& from, const View& to) override { cpu_.copy(from, to); }
    void upload(void* device, const void* host, std::size_t bytes) override { cpu_.upload(device, host, bytes); }
    void download(void* host, const void* device, std::size_t bytes) override { cpu_.download(host, device, bytes); }
    void fill(const View& out, double value) override { cpu_.fill(out, value); }
    void uniform(const View& out, double low, double high, RngState rng) override { cpu_.uniform(out, low, high, rng); }
    void sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) override {
        cpu_.sum(span, x, y, divisor, accumulate);
    }
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        cpu_.matmul(a, b, bias, out, accumulate);
    }
    void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) override {
        cpu_.conv_forward(spec, x, w, bias, y);
    }
    void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                       const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) override {
        cpu_.conv_backward(spec, x, w, gy, gx, gw, gb, accumulate, y, pending);
    }

  protected:
    Kernels& cpu_;
};

}  // namespace invar::testing
