// A safetensors file that is written in parts, by several processes at once where several have a part of it: all know
// where everything will lie, and the header with the checksums, to which all have added, comes last.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/io/descriptor.h"
#include "invar/io/safetensors_header.h"

namespace invar {

class SafetensorsLayout {
  public:
    // Names, dtypes and shapes are given; the order in the file and the places are worked out.
    SafetensorsLayout(std::vector<TensorEntry> entries, const Metadata& metadata);
    // As another process has worked it out, from what str() gave there.
    static SafetensorsLayout parse(std::string_view text);
    std::string str() const;

    const std::vector<TensorEntry>& entries() const { return header_.entries; }  // in file order
    std::size_t index_of(const std::string& name) const;
    std::uint64_t data_begin() const { return data_begin_; }  // in the file
    // The file up to its data; `sums` are those of the tensors, in file order.
    std::string head(std::span<const std::uint32_t> sums) const;
    std::string head_of_parts(std::span<const std::uint32_t> added) const;  // by what write_parts has given

  private:
    SafetensorsLayout() = default;
    SafetensorsHeader header_;
    std::uint64_t data_begin_ = 0;
};

struct TensorPart {
    std::string name;       // of the tensor that it is a part of
    Tensor values;          // on the host and dense: elements in the order of memory
    std::int64_t from = 0;  // which of the tensor's the first one is
    // The whole tensor's shape in memory, and which of its axes each of the file's is; none: memory is as the file.
    Shape view = {};
    std::vector<int> permutation = {};
};

// Writes each part where it belongs. What they add to each tensor's checksum: together with (XOR) what the other parts
// of the file add, it is the whole file's.
std::vector<std::uint32_t> write_parts(const Descriptor& file, const SafetensorsLayout& layout,
                                       std::span<const TensorPart> parts);

}  // namespace invar
