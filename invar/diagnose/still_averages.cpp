// Moving averages that a module keeps in 16 bits among its buffers. An average goes r <- r + s (x - r): near x the
// update is less than half a unit in the last place of r, and with a small s "near" is far away. Nothing of that shows
// in the first steps, so a step is tried from wherever the average may come by.
#include <algorithm>
#include <cmath>

#include "invar/diagnose/kept_buffers.h"
#include "invar/diagnose/run_faults.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/to.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr int kOctaves = 16, kPlaces = 4;  // the range that is tried, and how many places in each doubling
constexpr int kStill = 2;                  // places at which it stands still: a range, and not one place at rest
constexpr double kMost = 0.5;              // of the values

// What a step makes of one buffer.
class BufferStep {
  public:
    BufferStep(Setup& setup, Tensor& buffer, const StepStart& start, const LossFunction& loss)
        : setup_(setup), buffer_(buffer), start_(start), loss_(loss), dtype_(buffer.dtype()) {}
    // As 16 bits have them.
    std::vector<float> rounded(const std::vector<float>& values) const {
        return Tensor::from(values, buffer_.shape(), dtype_).to_vector<float>();
    }
    std::vector<float> operator()(const std::vector<float>& values) const {
        const NoGrad no_grad;
        buffer_ = ops::to(Tensor::from(values, buffer_.shape(), dtype_), setup_.device);
        default_generator().set_state(start_.rng);
        forward_backward(loss_, *setup_.model, kFullPrecision, start_.group.first(1), [](const Tensor&) {});
        return buffer_.to_vector<float>();
    }

  private:
    Setup& setup_;
    Tensor& buffer_;
    const StepStart& start_;
    const LossFunction& loss_;
    Dtype dtype_;
};

// At how many places each value stands still; -1 for one that a step from 0 leaves there, which is no average.
std::vector<int> still_places(const BufferStep& step, std::size_t size) {
    const std::vector<float> first = step(std::vector<float>(size, 0.0f));
    std::vector<int> still(size, 0);
    bool any = false;
    for (std::size_t i = 0; i < size; ++i) {
        if (first[i] == 0 || !std::isfinite(first[i])) still[i] = -1;
        any = any || still[i] == 0;
    }
    for (int place = 1; any && place <= kOctaves * kPlaces; ++place) {
        std::vector<float> from(size);
        for (std::size_t i = 0; i < size; ++i)
            from[i] = still[i] < 0 ? 0.0f : first[i] * float(std::exp2(double(place) / kPlaces));
        from = step.rounded(from);
        for (float& value : from)
            if (!std::isfinite(value)) value = 0.0f;
        const std::vector<float> to = step(from);
        for (std::size_t i = 0; i < size; ++i) still[i] += still[i] >= 0 && from[i] != 0 && to[i] == from[i];
    }
    return still;
}

}  // namespace

std::vector<StillAverage> still_averages(Setup& setup, const StepStart& start, const LossFunction& loss) {
    std::vector<StillAverage> found;
    const RngState rng = default_generator().state();
    const bool mode = setup.model->training();
    setup.model->train();
    for (const auto& [name, buffer] : setup.model->buffers()) {
        if (!is_sixteen_bit(buffer->dtype()) || buffer->numel() == 0) continue;
        const KeptBuffers kept(*setup.model);
        std::vector<int> still = still_places(BufferStep(setup, *buffer, start, loss), std::size_t(buffer->numel()));
        std::erase(still, -1);
        if (still.empty()) continue;
        StillAverage average{name, buffer->dtype(), std::int64_t(still.size())};
        average.still = std::ranges::count_if(still, [](int places) { return places >= kStill; });
        std::ranges::nth_element(still, still.begin() + std::ptrdiff_t(still.size() / 2));
        average.range = std::exp2(double(still[still.size() / 2]) / kPlaces);
        found.push_back(std::move(average));
    }
    setup.model->train(mode);
    default_generator().set_state(rng);
    return found;
}

MaybeConcern average_fault(std::span<const StillAverage> averages) {
    const StillAverage* worst = nullptr;
    for (const StillAverage& average : averages)
        if (average.share() > kMost && (worst == nullptr || average.share() > worst->share())) worst = &average;
    if (worst == nullptr) return {};
    Concern concern;
    concern.kind = Concern::Kind::moving_average;
    concern.module = module_of(worst->buffer);
    concern.text = fmt::format(
        "buffer {} ({}) stands still: for {:.0f}% of its values a step's update rounds to nothing over a range of "
        "{:.3g} "
        "times, so that where it stops says little of what it averages; keep it in FP32",
        worst->buffer, name_of(worst->dtype), 100 * worst->share(), worst->range);
    return concern;
}

}  // namespace invar
