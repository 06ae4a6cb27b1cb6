#include "invar/plan/measured_convolutions.h"

#include <algorithm>
#include <chrono>

#include "invar/core/error.h"
#include "invar/core/tensor.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

using dry::ConvCost;
using dry::Work;
using dry::WorkKind;

// Its operands, filled with numbers: zeros take a card less power, and so less time.
struct Operands {
    Operands(const Work& w, Device device) : spec(w.convolution) {
        const ConvSpec& s = spec;
        const auto filled = [&](const Shape& shape, Dtype dtype) {
            Tensor made = Tensor::empty(shape, dtype, device);
            kernels_for(device).uniform(made.view(), -1, 1, {1, 0});
            return made;
        };
        const Dtype sums = is_sixteen_bit(w.dtype) ? Dtype::f32 : w.dtype;  // of weight gradients
        x = filled({s.batch, s.in_h, s.in_w, s.in_c}, w.dtype);
        weights = filled({s.out_c, s.k_h, s.k_w, s.in_c / s.groups}, w.dtype);
        y = filled({s.batch, s.out_h, s.out_w, s.out_c}, w.dtype);
        if (w.kind == WorkKind::data_gradient) gx = filled(x.shape(), w.dtype);
        if (w.kind == WorkKind::weight_gradient) gw = filled(weights.shape(), sums);
        if (w.bias) bias = filled({s.out_c}, gw ? sums : w.dtype);
        if (w.kind == WorkKind::weight_gradient && s.activation != Activation::none)
            result = filled(y.shape(), w.dtype);
    }
    void run(Kernels& kernels) const {
        const auto view = [](const Tensor& t) { return t ? t.view() : View{}; };
        if (gx || gw)
            kernels.conv_backward(spec, x.view(), weights.view(), y.view(), view(gx), view(gw), view(bias), false,
                                  view(result));
        else
            kernels.conv_forward(spec, x.view(), weights.view(), view(bias), y.view());
    }
    ConvSpec spec;
    Tensor x, weights, y, gx, gw, bias, result;
};

// The best of some rounds of several in a row, recorded where the device can.
double seconds_of(const Operands& operands, Kernels& kernels, Device device) {
    constexpr int kInARow = 8, kRounds = 3;
    using Clock = std::chrono::steady_clock;
    const auto some = [&] {
        for (int i = 0; i < kInARow; ++i) operands.run(kernels);
    };
    const MemoryPool pool(device);
    const std::unique_ptr<Recording> recording = kernels.record(pool, some);
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
        kernels.synchronize();
        const auto start = Clock::now();
        recording ? recording->replay() : some();
        kernels.synchronize();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / kInARow;
        if (best == 0 || seconds < best) best = seconds;
    }
    return best;
}

ConvCost measured(const Work& w, Kernels& kernels, Device device) {
    const Tf32Scope tf32(w.tf32);
    const PurposeScope purpose(Purpose::data);
    ConvCost cost{w.convolution, w.kind, w.dtype, w.tf32, w.bias};
    const Operands operands(w, device);
    operands.run(kernels);  // engines are tried out, and the memory that all share is taken
    kernels.synchronize();
    reset_peak_memory(device);
    operands.run(kernels);
    kernels.synchronize();
    const MemoryStats memory = memory_stats(device);
    cost.scratch = double(memory.peak_of(Purpose::workspace) - memory.live[std::size_t(Purpose::workspace)]);
    cost.seconds = seconds_of(operands, kernels, device);
    return cost;
}

}  // namespace

dry::ConvCosts measure_convolutions(const dry::WorkList& work, const Config& config, Device device) {
    Kernels& kernels = kernels_for(device);
    kernels.configure({config.trainer.benchmark, config.trainer.deterministic});
    dry::ConvCosts costs;
    for (const Work& w : work) {
        if (!is_convolution(w.kind) || dry::find_cost(costs, w) != nullptr) continue;
        try {
            costs.push_back(measured(w, kernels, device));
        } catch (const Error&) {  // it is reckoned instead
        }
    }
    release_cached_memory(device);
    return costs;
}

}  // namespace invar
