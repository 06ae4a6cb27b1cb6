#include "invar/data/batch.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

auto find(const std::vector<Batch::Named>& tensors, std::string_view name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const Batch::Named& one) { return one.first == name; });
}

}  // namespace

const Tensor& Batch::operator[](std::string_view name) const {
    const auto found = find(tensors_, name);
    if (found != tensors_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, tensor] : tensors_) names.push_back(known);
    fail("the batch has no tensor '{}'; it has {}: do task and data go together? (task=NAME)", name,
         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

bool Batch::has(std::string_view name) const {
    return find(tensors_, name) != tensors_.end();
}

void Batch::set(const std::string& name, Tensor tensor) {
    const auto found = find(tensors_, name);
    if (found == tensors_.end())
        tensors_.emplace_back(name, std::move(tensor));
    else
        tensors_[std::size_t(found - tensors_.begin())].second = std::move(tensor);
}

Batch Batch::head(std::int64_t count) const {
    count = std::min(count, size);
    Batch first = map([&](const Tensor& tensor) {
        if (tensor.rank() == 0 || tensor.size(0) != size) return tensor;
        Shape shape = tensor.shape();
        shape[0] = count;
        return tensor.window(0, shape);
    });
    first.size = count;
    first.part = {};
    return first;
}

std::int64_t samples_of(std::span<const Batch> group) {
    std::int64_t samples = 0;
    for (const Batch& batch : group) samples += batch.size;
    return samples;
}

std::int64_t whole_samples_of(std::span<const Batch> group) {
    std::int64_t samples = 0;
    for (const Batch& batch : group) samples += batch.whole();
    return samples;
}

}  // namespace invar
