// Files of tensors of any kind that people keep (safetensors, shards with their index, .npz, torch.save's), opened for
// a look: what is in them, and the bytes of each tensor from front to back or piece by piece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "invar/core/dtype.h"
#include "invar/core/shape.h"
#include "invar/data/zip.h"

namespace invar {

class SafetensorsFile;
class TorchFile;
struct TensorEntry;

// The bytes of a tensor from front to back.
class TensorStream {
  public:
    virtual ~TensorStream() = default;
    // As many as are asked for, or those that are left; 0 at the end. Throws IoError, for a checksum that is wrong too.
    virtual std::size_t read(char* out, std::size_t most) = 0;
};

using OpenStream = std::function<std::unique_ptr<TensorStream>()>;

struct StoredTensor {
    std::string name;
    Dtype dtype = Dtype::f32;  // a floating one
    Shape shape;
    std::uint64_t bytes = 0;
    OpenStream open;
    // Where any piece can be read by itself; none for a file that has to be read from front to back.
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;
};

// A tensor that is listed, but not judged.
struct LeftOut {
    enum class Why { not_floating, other_format, unknown_dtype };
    std::string name;
    std::string dtype;  // as the file spells it
    Why why = Why::not_floating;
};

class TensorFile {
  public:
    // The kind is told by the first bytes. Reads what lists the tensors alone, and checks it against the size. Throws
    // IoError.
    explicit TensorFile(const std::filesystem::path& path);

    const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
    const std::vector<LeftOut>& left_out() const { return left_out_; }
    // Bytes that no tensor reads whole, to be read once for their checksums.
    const std::vector<OpenStream>& unread() const { return unread_; }

  private:
    void open_safetensors(const std::filesystem::path& path);
    void open_zip(const std::filesystem::path& path);
    void open_npz(const std::filesystem::path& path, ReadAt read, std::vector<ZipMember> members);
    void open_torch(TorchFile opened);
    std::shared_ptr<void> keeper_;  // what the tensors point into
    std::vector<StoredTensor> tensors_;
    std::vector<LeftOut> left_out_;
    std::vector<OpenStream> unread_;
};

}  // namespace invar
