#include "invar/diagnose/vanished.h"

#include <algorithm>
#include <cstring>

namespace invar {

namespace {

constexpr double kMany = 0.1;

double zeros_in(const Tensor& tensor) {
    if (!tensor || !is_floating(tensor.dtype()) || tensor.numel() == 0) return 0.0;
    const Range range = range_of("", tensor);
    return double(range.zeros) / double(range.values);
}

}  // namespace

void ZeroTrace::forward(const ForwardRun& run) {
    if (std::strcmp(run.op, "cast") == 0) return;
    Entry entry{run.module, run.op, zeros_in(run.result)};
    for (const Tensor& input : run.inputs) entry.zeros = std::max(entry.zeros, zeros_in(input));
    entries.push_back(std::move(entry));
}

const ZeroTrace::Entry* first_vanished(const ZeroTrace& low, const ZeroTrace& full) {
    const std::size_t count = std::min(low.entries.size(), full.entries.size());
    for (std::size_t i = 0; i < count; ++i)
        if (low.entries[i].zeros > full.entries[i].zeros + kMany) return &low.entries[i];
    return nullptr;
}

}  // namespace invar
