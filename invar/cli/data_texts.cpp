#include "invar/cli/data_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "invar/cli/console.h"
#include "invar/core/printable.h"
#include "invar/data/text_ceiling.h"

namespace invar::cli {

namespace {

using detect::Ceiling;
using detect::ImageCeiling;
using detect::Loss;

std::string percent(double part, double all) {
    return fmt::format("{:.1f}%", all > 0 ? 100 * part / all : 0.0);
}

}  // namespace

void print_text_ceiling(const TextImages& data, std::int64_t most, int threads, const detect::BoxOptions& boxes,
                        const detect::IcdarOptions& protocol) {
    const std::vector<ImageCeiling> images = ceilings_of(data, most, threads, boxes, protocol);
    Ceiling all;
    for (const ImageCeiling& image : images) all += image.ceiling;
    const double truths = double(all.counts.truths);
    say(fmt::format("texts: {} that count, {} that nobody could read, in {}", human_count(all.counts.truths),
                    human_count(all.dont_care), count_of(std::int64_t(images.size()), "image")));
    if (all.counts.truths == 0) return;
    say(fmt::format("ceiling: labels found to the bit give H-mean {:.1f}%, recall {:.1f}%, precision {:.1f}%",
                    100 * all.counts.hmean(), 100 * all.counts.recall(), 100 * all.counts.precision()));
    Table table({"lost since", "texts", "share"});
    for (std::size_t i = 0; i < detect::kLosses; ++i)
        if (const std::int64_t lost = all.lost[i]; lost > 0)
            table.row({std::string(name_of(Loss(i))), human_count(lost), percent(double(lost), truths)});
    if (all.counts.matched < all.counts.truths) print(table.text("  "));
    constexpr std::size_t kWorst = 5;
    Table worst({"worst images", "texts", "lost", "mostly"});
    const std::vector<ImageCeiling> shown = worst_images(images, kWorst);
    for (const ImageCeiling& image : shown) {
        const auto& lost = image.ceiling.lost;
        const auto reason = std::size_t(std::max_element(lost, lost + detect::kLosses) - lost);
        worst.row({printable(image.name), human_count(image.ceiling.counts.truths),
                   human_count(std::int64_t(image.lost.size())), std::string(name_of(Loss(reason)))});
    }
    if (!shown.empty()) print(worst.text("  "));
    if (all.lost_by(Loss::too_small) * 20 > all.counts.truths)
        say(
            fmt::format("more than a twentieth of the texts is too small at data.size={}; a larger one, or a smaller "
                        "data.min_text_size, would keep them",
                        data.options().size));
}

}  // namespace invar::cli
