#include "invar/io/safetensors.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "invar/core/error.h"
#include "invar/io/checksum.h"
#include "invar/io/file.h"
#include "invar/io/safetensors_parts.h"
#include "invar/io/safetensors_sums.h"

namespace invar {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

std::string_view bytes_of(const Tensor& tensor) {
    return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

// Row by row in the order of the file, whatever the strides; only the element size matters, not its meaning.
Tensor dense_copy(const Tensor& tensor) {
    Tensor result = Tensor::empty_like(tensor);
    const View from = tensor.view();
    const std::size_t width = size_of(from.dtype);
    char* out = static_cast<char*>(result.raw());
    const char* base = static_cast<const char*>(from.data);
    std::int64_t index[View::kRank] = {};
    std::int64_t position = 0;
    for (std::int64_t i = 0, count = from.numel(); i < count; ++i, out += width) {
        std::memcpy(out, base + position * std::int64_t(width), width);
        for (int d = from.rank - 1; d >= 0; --d) {
            position += from.stride[d];
            if (++index[d] < from.size[d]) break;
            position -= index[d] * from.stride[d];
            index[d] = 0;
        }
    }
    return result;
}

Tensor room_for(const TensorEntry& entry, const std::string& source) {
    try {
        return Tensor::empty(entry.shape, entry.dtype);
    } catch (const Error&) {
        fail<IoError>("{}: tensor {} of shape {} takes {} bytes, more than there is memory for", source,
                      Quoted{entry.name}, entry.shape.str(), entry.end - entry.begin);
    }
}

SafetensorsContent content_of(const SafetensorsFile& file) {
    SafetensorsContent content{{}, file.metadata()};
    for (const TensorEntry& entry : file.entries()) content.tensors.emplace(entry.name, file.tensor(entry.name));
    return content;
}

}  // namespace

std::vector<std::string_view> SafetensorsImage::pieces() const& {
    std::vector<std::string_view> pieces{head};
    for (const Tensor& tensor : tensors) pieces.push_back(bytes_of(tensor));
    return pieces;
}

SafetensorsImage lay_out_safetensors(const TensorMap& tensors, const Metadata& metadata) {
    std::vector<TensorEntry> entries;
    for (const auto& [name, tensor] : tensors) {
        check<UsageError>(tensor.defined(), "safetensors: tensor {} is undefined", Quoted{name});
        check<UsageError>(name != "__metadata__", "safetensors: a tensor must not be called {}", name);
        entries.push_back({name, tensor.dtype(), tensor.shape(), 0, 0, {}});
    }
    const SafetensorsLayout layout(std::move(entries), metadata);
    SafetensorsImage image;
    std::vector<std::uint32_t> sums;
    for (const TensorEntry& entry : layout.entries()) {
        const Tensor tensor = tensors.at(entry.name).on_host();
        image.tensors.push_back(tensor.is_contiguous() ? tensor : dense_copy(tensor));
        sums.push_back(crc32c(bytes_of(image.tensors.back())));
    }
    image.head = layout.head(sums);
    return image;
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata) {
    const SafetensorsImage image = lay_out_safetensors(tensors, metadata);
    write_file_atomically(path, image.pieces());
}

SafetensorsContent load_safetensors(const std::filesystem::path& path) {
    return content_of(SafetensorsFile(path));
}

SafetensorsContent parse_safetensors(std::string_view bytes, std::string_view source) {
    return content_of(SafetensorsFile(bytes, source));
}

// Tensors are read rather than mapped: a file that shrinks or a disk that fails is then an error, not a signal.
SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ForeignDtypes foreign) : source_(path.string()) {
    file_ = std::make_shared<Descriptor>(Descriptor::open(path, O_RDONLY, "read"));
    read_at_ = [file = file_](std::uint64_t offset, char* out, std::size_t bytes) {
        file->read_at(offset, out, bytes);
    };
    parse(file_->size(), foreign);
}

SafetensorsFile::SafetensorsFile(std::string_view bytes, std::string_view source, ForeignDtypes foreign)
    : source_(source) {
    read_at_ = [bytes](std::uint64_t offset, char* out, std::size_t count) {
        bytes.substr(static_cast<std::size_t>(offset)).copy(out, count);
    };
    parse(bytes.size(), foreign);
}

void SafetensorsFile::parse(std::uint64_t file_bytes, ForeignDtypes foreign) {
    head_.resize(static_cast<std::size_t>(std::min(file_bytes, kLengthBytes)));
    read_at_(0, head_.data(), head_.size());
    const std::uint64_t length = parse_header_length(head_, file_bytes, source_);
    head_.resize(static_cast<std::size_t>(kLengthBytes + length));
    read_at_(kLengthBytes, head_.data() + kLengthBytes, static_cast<std::size_t>(length));
    header_ = parse_header(std::string_view(head_).substr(kLengthBytes), file_bytes - head_.size(), source_, foreign);
    has_sums_ = take_sums(head_, header_, source_);
    for (std::size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
}

void SafetensorsFile::read(const TensorEntry& entry, std::uint64_t from, char* out, std::size_t bytes) const {
    check(from + bytes <= entry.end - entry.begin, "{}: tensor {} has no bytes {} to {}", source_, Quoted{entry.name},
          from, from + bytes);
    if (bytes > 0) read_at_(head_.size() + entry.begin + from, out, bytes);
}

void SafetensorsFile::announce(const TensorEntry& entry, std::uint64_t from, std::size_t bytes) const {
    if (file_ != nullptr) file_->announce(head_.size() + entry.begin + from, bytes);
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
    const auto found = index_.find(name);
    check<IoError>(found != index_.end(), "{}: there is no tensor {} among its {}", source_, Quoted{name},
                   index_.size());
    const TensorEntry& entry = header_.entries[found->second];
    Tensor result = room_for(entry, source_);
    read(entry, 0, static_cast<char*>(result.raw()), result.bytes());
    if (entry.crc32c) check_sum(entry, crc32c(bytes_of(result)));
    return result;
}

void SafetensorsFile::check_sum(const TensorEntry& entry, std::uint32_t crc32c) const {
    check<IoError>(!entry.crc32c || *entry.crc32c == crc32c,
                   "{}: the bytes of tensor {} have the checksum {:08x}, expected {:08x}; the file is damaged, use "
                   "another copy of it",
                   source_, Quoted{entry.name}, crc32c, entry.crc32c.value_or(0));
}

void SafetensorsFile::verify() const {
    std::string buffer(std::size_t(1) << 20, '\0');
    for (const TensorEntry& entry : header_.entries) {
        const std::uint64_t bytes = entry.end - entry.begin;
        std::uint32_t sum = 0;
        for (std::uint64_t from = 0; from < bytes;) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - from));
            read(entry, from, buffer.data(), count);
            sum = crc32c(std::string_view(buffer).substr(0, count), sum);
            from += count;
        }
        check_sum(entry, sum);
    }
}

}  // namespace invar
