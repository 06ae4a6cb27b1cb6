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
        result.part = part;
        for (const auto& [name, tensor] : tensors_) result.tensors_.emplace_back(name, f(tensor));
        return result;
    }

    // Its first samples: tensors with a row for each sample are cut, others stay whole.
    Batch head(std::int64_t count) const;

    std::int64_t size = 0;

    // Where several ranks read a batch together: which of its samples these are. A rank for which none is left gets one
    // that counts for nothing, since all ranks do the same work.
    struct Part {
        std::int64_t first = 0;
        std::int64_t of = 0;  // samples of the whole batch; 0: this is all of it
        bool spare = false;
    };
    Part part;
    std::int64_t whole() const { return part.of > 0 ? part.of : size; }
    // The share of these samples in a mean over so many.
    double share_of(double samples) const { return part.spare ? 0.0 : double(size) / samples; }

  private:
    std::vector<Named> tensors_;
};

std::int64_t samples_of(std::span<const Batch> group);
// Those that other ranks work on included.
std::int64_t whole_samples_of(std::span<const Batch> group);

}  // namespace invar
