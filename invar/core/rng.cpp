#include "invar/core/rng.h"

#include <algorithm>

namespace invar {

namespace {

struct Window {
    std::int64_t first = 0, count = 0, of = 0;
};

Window& window() {
    thread_local Window current;
    return current;
}

}  // namespace

SampleWindow::SampleWindow(std::int64_t first, std::int64_t count, std::int64_t of)
    : previous_{window().first, window().count, window().of} {
    window() = {first, count, of};
}

SampleWindow::~SampleWindow() {
    window() = {previous_[0], previous_[1], previous_[2]};
}

ReservedNumbers reserve_for_samples(Generator& generator, std::int64_t elements, int each) {
    const auto counters = [each](std::int64_t count) { return std::uint64_t((count + each - 1) / each); };
    const Window& w = window();
    if (w.count == 0 || w.of == w.count || elements % w.count != 0) return {generator.reserve(counters(elements))};
    const std::int64_t of_one = elements / w.count;
    const std::int64_t before = of_one * w.first;
    ReservedNumbers taken{generator.reserve(counters(of_one * w.of)), int(before % each)};
    taken.from.offset += std::uint64_t(before / each);
    return taken;
}

Generator& default_generator() {
    thread_local Generator generator;
    return generator;
}

}  // namespace invar
