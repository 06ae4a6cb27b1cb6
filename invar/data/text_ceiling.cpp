#include "invar/data/text_ceiling.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "invar/core/error.h"

namespace invar {

using detect::ImageCeiling;

std::vector<ImageCeiling> ceilings_of(const TextImages& data, std::int64_t most, int threads, detect::BoxOptions boxes,
                                      const detect::IcdarOptions& protocol, const Stopped& stopped) {
    const detect::LabelOptions labels = data.options().labels();
    boxes.shrink_ratio = labels.shrink_ratio;
    const std::int64_t count = std::min(most, data.size()), side = data.options().size;
    std::atomic<std::int64_t> next = 0;
    std::mutex mutex;
    std::vector<std::pair<std::int64_t, ImageCeiling>> found;
    const auto work = [&] {
        for (std::int64_t i = next++; i < count && !(stopped && stopped()); i = next++) {
            const std::int64_t sample = std::int64_t(double(i) * double(data.size()) / double(count));
            try {
                ImageCeiling image = image_ceiling(data.view(sample).texts, side, side,
                                                   {labels, boxes, protocol, stopped}, data.sample_name(sample));
                const std::lock_guard lock(mutex);
                found.emplace_back(sample, std::move(image));
            } catch (const Error&) {  // whoever trains on it is told
            }
        }
    };
    {
        std::vector<std::jthread> helpers;
        for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
        work();
    }
    std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
    std::vector<ImageCeiling> images;
    for (auto& [sample, image] : found) images.push_back(std::move(image));
    return images;
}

}  // namespace invar
