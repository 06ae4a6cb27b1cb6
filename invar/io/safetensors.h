// Safetensors files: named tensors and text metadata, as every framework of the field reads and writes them.
// A file is checked before a tensor of it is handed out, by its checksums too where it has them; files are written
// atomically and with checksums.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/io/descriptor.h"
#include "invar/io/safetensors_header.h"

namespace invar {

using TensorMap = std::map<std::string, Tensor>;

struct SafetensorsContent {
    TensorMap tensors;
    Metadata metadata;
};

// Tensors of any device, dense or strided; `metadata` goes into the header as it is.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata = {});
SafetensorsContent load_safetensors(const std::filesystem::path& path);
// The same from memory; `source` names the bytes in errors.
SafetensorsContent parse_safetensors(std::string_view bytes, std::string_view source);

// A file opened for a look: entries are listed from the header alone, and each tensor is read when asked for.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::filesystem::path& path, ForeignDtypes foreign = ForeignDtypes::refuse);
    // The bytes must outlive this.
    SafetensorsFile(std::string_view bytes, std::string_view source, ForeignDtypes foreign = ForeignDtypes::refuse);

    const std::vector<TensorEntry>& entries() const { return header_.entries; }  // in file order
    const std::vector<ForeignEntry>& foreign() const { return header_.foreign; }
    const Metadata& metadata() const { return header_.metadata; }  // without the checksums
    bool contains(const std::string& name) const { return index_.contains(name); }
    Tensor tensor(const std::string& name) const;

    const std::string& source() const { return source_; }
    const std::string& head() const { return head_; }  // the file up to its data
    // Safe from several threads.
    void read(const TensorEntry& entry, std::uint64_t from, char* out, std::size_t bytes) const;
    // Whoever has read a tensor whole by read() shows the checksum of what came; tensor() and verify() do so
    // themselves.
    void check_sum(const TensorEntry& entry, std::uint32_t crc32c) const;
    bool has_sums() const { return has_sums_; }
    // Reads everything once and keeps nothing.
    void verify() const;
    // That they will be read soon.
    void announce(const TensorEntry& entry, std::uint64_t from, std::size_t bytes) const;

  private:
    using Reader = std::function<void(std::uint64_t offset, char* out, std::size_t bytes)>;
    void parse(std::uint64_t file_bytes, ForeignDtypes foreign);

    std::string source_;
    Reader read_at_;
    std::shared_ptr<const Descriptor> file_;  // none where the bytes are in memory
    std::string head_;
    SafetensorsHeader header_;
    bool has_sums_ = false;
    std::map<std::string, std::size_t> index_;
};

// A file laid out in memory: its header, checksums included, then the tensors' bytes where they lie.
struct SafetensorsImage {
    std::string head;
    Tensors tensors;  // dense, in file order
    // They point into this, hence not of a temporary.
    std::vector<std::string_view> pieces() const&;
    std::vector<std::string_view> pieces() && = delete;
};
SafetensorsImage lay_out_safetensors(const TensorMap& tensors, const Metadata& metadata);

}  // namespace invar
