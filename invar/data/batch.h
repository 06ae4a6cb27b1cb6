// Batch: the tensors of some samples, by name, of any dtype and shape, on the host or a device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

class Batch {
  public:
    using Named = std::pair<std::string, Tensor>;

    Batch() = default;
    // `size`: how many samples these tensors stand for, by which a batch counts in a mean over several.
    Batch(std::initializer_list<Named> tensors, std::int64_t size) : size(size), tensors_(tensors) {}

    // Throws an Error that lists the names there are.
    const Tensor& operator[](std::string_view name) const;
    bool has(std::string_view name) const;
    // Adds a tensor, or takes the place of the one of that name.
    void set(const std::string& name, Tensor tensor);
    const std::vector<Named>& tensors() const { return tensors_; }

    // The same names with what `f` makes of each tensor.
    template <class F>
    Batch map(F&& f) const {
        Batch result({}, size);
        for (const auto& [name, tensor] : tensors_) result.tensors_.emplace_back(name, f(tensor));
        return result;
    }

    // Its first samples: tensors with a row for each sample are cut, others stay whole.
    Batch head(std::int64_t count) const;

    std::int64_t size = 0;

  private:
    std::vector<Named> tensors_;
};

std::int64_t samples_of(std::span<const Batch> group);

}  // namespace invar
