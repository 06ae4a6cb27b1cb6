// Tensors that torch.save wrote (.pt, .pth, .bin), listed without PyTorch and without running anything of the file: a
// zip archive with a pickle of where tensors lie, and a member for the bytes of each storage.
#pragma once

#include <optional>

#include "invar/core/dtype.h"
#include "invar/core/shape.h"
#include "invar/data/zip.h"

namespace invar {

struct TorchTensor {
    std::string name;            // keys of dictionaries and places in lists on the way to it, joined by '.'
    std::string dtype;           // as PyTorch calls it: "float32"
    std::optional<Dtype> known;  // nothing for one that Invar does not compute with
    Shape shape;
    // Its elements in the order of their places: sizes and steps, the largest step first, from an offset on. Where that
    // is one step of 1 the tensor is dense.
    struct Run {
        std::int64_t count, step;
    };
    std::vector<Run> runs;
    std::int64_t offset = 0, numel = 0;  // in elements
    std::size_t width = 0;               // bytes of an element
    const ZipMember* storage = nullptr;  // stored as it is
    bool fills_storage() const;          // the bytes of the storage are its elements, and there are no others
};

class TorchFile {
  public:
    // Throws IoError for what is damaged, claims more than is there, or holds more than tensors and plain values.
    // The members are those of an archive of so many bytes. Tensors point into this: a copy has others' storages.
    TorchFile(ReadAt read, std::vector<ZipMember> members, std::uint64_t bytes, std::string source);
    TorchFile(TorchFile&&) = default;
    static bool is_one(const std::vector<ZipMember>& members);

    const std::vector<TorchTensor>& tensors() const { return tensors_; }  // in the order of the file
    const ReadAt& read() const { return read_; }
    const std::string& source() const { return source_; }

  private:
    ReadAt read_;
    std::string source_;
    std::vector<ZipMember> members_;
    std::vector<TorchTensor> tensors_;
};

}  // namespace invar
