#include "invar/train/review.h"

#include <algorithm>

#include "invar/ops/to.h"

namespace invar {

std::vector<Remark> remarks_on(const Task& task, Module& model, Loader& data, const Precision& precision) {
    const EvaluationScope scope(model, precision);
    data.start_epoch(0);
    return task.remarks_on_model(model, [&] { return data.next(); });
}

std::vector<Image> pictures_of(const Task& task, Module& model, const Loader& data, const Precision& precision,
                               std::int64_t most) {
    const std::int64_t size = data.dataset().size(), count = std::min(most, size);
    std::int64_t shown = 0;
    const auto one_by_one = [&]() -> std::optional<Batch> {
        if (shown == count) return std::nullopt;
        const std::int64_t sample = shown++ * (size / count);
        const Device device = data.options().device;
        return data.dataset().read(std::span(&sample, 1)).map([&](const Tensor& x) { return ops::to(x, device); });
    };
    const EvaluationScope scope(model, precision);
    return task.pictures(model, one_by_one);
}

}  // namespace invar
