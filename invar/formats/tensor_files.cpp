#include "invar/formats/tensor_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "invar/core/error.h"
#include "invar/data/npy.h"
#include "invar/hub/torch_file.h"
#include "invar/hub/weight_files.h"
#include "invar/io/checksum.h"
#include "invar/io/descriptor.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

class SafetensorsStream : public TensorStream {
  public:
    SafetensorsStream(const SafetensorsFile& file, const TensorEntry& entry) : file_(file), entry_(entry) {}
    std::size_t read(char* out, std::size_t most) override {
        const std::uint64_t size = entry_.end - entry_.begin;
        const auto count = std::size_t(std::min<std::uint64_t>(most, size - at_));
        if (count == 0) return 0;
        file_.read(entry_, at_, out, count);
        at_ += count;
        sum_ = crc32c({out, count}, sum_);
        if (at_ == size) file_.check_sum(entry_, sum_);
        return count;
    }

  private:
    const SafetensorsFile& file_;
    const TensorEntry& entry_;
    std::uint64_t at_ = 0;
    std::uint32_t sum_ = 0;
};

// A member of an archive, without what stands before the tensor in it.
class MemberStream : public TensorStream {
  public:
    MemberStream(const ZipMember& member, const ReadAt& read, const std::string& file, std::size_t skip = 0,
                 std::size_t swapped = 1)
        : stream_(member, read, file), swapped_(swapped) {
        std::vector<char> ignored(skip);
        for (std::size_t done = 0; done < skip;)
            done += std::max<std::size_t>(1, stream_.read(ignored.data(), skip - done));
    }
    std::size_t read(char* out, std::size_t most) override {
        most -= most % swapped_;
        std::size_t count = 0;
        while (const std::size_t more = count < most ? stream_.read(out + count, most - count) : 0) count += more;
        if (swapped_ > 1)
            for (char* at = out; at + swapped_ <= out + count; at += swapped_) std::reverse(at, at + swapped_);
        return count;
    }

  private:
    ZipStream stream_;
    std::size_t swapped_;  // bytes of an element whose order is the other one
};

// The elements of a tensor that has part of a storage, in the order of their places, which only grow.
class StridedStream : public TensorStream {
  public:
    StridedStream(const TorchTensor& tensor, const ReadAt& read)
        : tensor_(tensor), read_(read), index_(tensor.runs.size()), window_(kWindow) {}
    std::size_t read(char* out, std::size_t most) override {
        std::size_t made = 0;
        while (left_ > 0 && most - made >= tensor_.width) {
            const bool plain = tensor_.runs.empty() || tensor_.runs.back().step == 1;
            const std::int64_t in_row = tensor_.runs.empty() ? 1 : tensor_.runs.back().count - index_.back();
            const auto count = plain ? std::min<std::int64_t>(in_row, std::int64_t((most - made) / tensor_.width)) : 1;
            copy(out + made, std::size_t(count) * tensor_.width);
            made += std::size_t(count) * tensor_.width;
            advance(count);
        }
        return made;
    }

  private:
    static constexpr std::size_t kWindow = std::size_t(64) << 10;  // more than any element has

    void copy(char* out, std::size_t bytes) {
        const std::uint64_t from = std::uint64_t(place_) * tensor_.width;
        if (bytes > kWindow / 2) return read_(tensor_.storage->begin + from, out, bytes);
        if (from < window_at_ || from + bytes > window_at_ + filled_) {
            window_at_ = from;
            filled_ = std::size_t(std::min<std::uint64_t>(kWindow, tensor_.storage->size - from));
            read_(tensor_.storage->begin + from, window_.data(), filled_);
        }
        std::memcpy(out, window_.data() + (from - window_at_), bytes);
    }
    void advance(std::int64_t count) {
        left_ -= count;
        for (std::size_t d = index_.size(); d-- > 0; count = 1) {
            index_[d] += count;
            place_ += count * tensor_.runs[d].step;
            if (index_[d] < tensor_.runs[d].count) break;
            place_ -= index_[d] * tensor_.runs[d].step;
            index_[d] = 0;
        }
    }

    const TorchTensor& tensor_;
    const ReadAt& read_;
    std::vector<std::int64_t> index_;
    std::int64_t place_ = tensor_.offset, left_ = tensor_.numel;
    std::vector<char> window_;
    std::uint64_t window_at_ = 0;
    std::size_t filled_ = 0;
};

LeftOut::Why why_left_out(ForeignEntry::Kind kind) {
    using Kind = ForeignEntry::Kind;
    return kind == Kind::integer       ? LeftOut::Why::not_floating
           : kind == Kind::not_integer ? LeftOut::Why::other_format
                                       : LeftOut::Why::unknown_dtype;
}

// What the arrays of an .npz file are read from.
struct Npz {
    std::string source;
    ReadAt read;
    std::vector<ZipMember> members;
};

std::optional<Dtype> dtype_of_npy(const NpyHeader& header) {
    if (!header.is_numbers || header.kind != 'f') return std::nullopt;
    return header.width == 8 ? Dtype::f64 : header.width == 4 ? Dtype::f32 : Dtype::f16;
}

// Complex numbers and those of unusual width are of a format that is not judged; text, dates and objects are no
// numbers.
LeftOut left_out_of_npz(const std::string& name, const NpyHeader& header) {
    const char kind = header.descr.size() > 1 ? header.descr[1] : '?';
    const bool other = kind == 'c' || kind == 'f';
    return {name, header.descr, other ? LeftOut::Why::other_format : LeftOut::Why::not_floating};
}

enum class FileKind { safetensors, zip, old_torch, npy };

FileKind kind_of(const fs::path& path) {
    const Descriptor file = Descriptor::open(path, O_RDONLY, "read");
    char first[9] = {};
    const auto count = std::size_t(std::min<std::uint64_t>(file.size(), sizeof first));
    file.read_at(0, first, count);
    const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(first), count);
    if (is_zip(bytes) && first[8] != '{')
        return FileKind::zip;  // the header of safetensors may be as long as "PK" reads
    constexpr std::string_view kOldTorch = "\x80\x02\x8a\x0al\xfc\x9c";
    constexpr std::string_view kNpy = "\x93NUMPY";
    const std::string_view text(first, count);
    if (text.starts_with(kNpy)) return FileKind::npy;
    return text.starts_with(kOldTorch) ? FileKind::old_torch : FileKind::safetensors;
}

}  // namespace

void TensorFile::open_safetensors(const fs::path& path) {
    const auto files = std::make_shared<WeightFiles>(path, ForeignDtypes::list);
    keeper_ = files;
    for (const auto& file : files->files())
        for (const ForeignEntry& entry : file->foreign())
            left_out_.push_back({entry.name, entry.dtype, why_left_out(entry.kind)});
    for (const WeightFiles::Place& place : files->tensors()) {
        const TensorEntry& entry = *place.entry;
        if (is_floating(entry.dtype))
            tensors_.push_back({entry.name, entry.dtype, entry.shape, entry.end - entry.begin,
                                [place] { return std::make_unique<SafetensorsStream>(*place.file, *place.entry); },
                                place.file, place.entry});
        else
            left_out_.push_back({entry.name, std::string(file_name_of(entry.dtype)), {}});
    }
}

void TensorFile::open_npz(const fs::path& path, ReadAt read, std::vector<ZipMember> members) {
    const auto npz = std::make_shared<Npz>(Npz{path.string(), std::move(read), std::move(members)});
    keeper_ = npz;
    for (const ZipMember& member : npz->members) {
        const std::string where = fmt::format("{}: {}", npz->source, member.name);
        check<IoError>(member.name.ends_with(".npy"),
                       "{}: a zip archive that holds {}, and so neither an .npz file nor one of torch.save",
                       npz->source, Quoted{member.name});
        Bytes first(std::size_t(std::min<std::uint64_t>(member.size, kMostNpyHeader)));
        ZipStream stream(member, npz->read, npz->source);
        for (std::size_t done = 0; done < first.size();) {
            const std::size_t count = stream.read(reinterpret_cast<char*>(first.data()) + done, first.size() - done);
            if (count == 0) break;
            done += count;
        }
        const NpyHeader header = parse_npy_header(first, where, std::numeric_limits<std::int64_t>::max() / 16);
        const std::string name = member.name.substr(0, member.name.size() - 4);
        check<IoError>(!header.is_numbers || header.end() == member.size,
                       "{}: holds {} bytes, expected {} for {}; fetch the file again", where, member.size, header.end(),
                       header.shape.str());
        if (const std::optional<Dtype> dtype = dtype_of_npy(header)) {
            const std::size_t begin = header.begin, swapped = header.big_endian ? header.width : 1;
            tensors_.push_back({name, *dtype, header.shape, member.size - begin,
                                [npz, &member, begin, swapped] {
                                    return std::make_unique<MemberStream>(member, npz->read, npz->source, begin,
                                                                          swapped);
                                },
                                nullptr, nullptr});
        } else {
            left_out_.push_back(left_out_of_npz(name, header));
        }
    }
}

void TensorFile::open_torch(TorchFile opened) {
    const auto file = std::make_shared<TorchFile>(std::move(opened));
    keeper_ = file;
    std::set<const ZipMember*> whole, part;
    for (const TorchTensor& tensor : file->tensors()) {
        if (!tensor.known || !is_floating(*tensor.known)) {
            const bool other = !tensor.known && tensor.dtype.starts_with("complex");
            left_out_.push_back(
                {tensor.name, tensor.dtype, other ? LeftOut::Why::other_format : LeftOut::Why::not_floating});
            continue;
        }
        const bool fills = tensor.fills_storage();
        (fills ? whole : part).insert(tensor.storage);
        OpenStream open = [file, &tensor, fills]() -> std::unique_ptr<TensorStream> {
            if (fills) return std::make_unique<MemberStream>(*tensor.storage, file->read(), file->source());
            return std::make_unique<StridedStream>(tensor, file->read());
        };
        tensors_.push_back({tensor.name, *tensor.known, tensor.shape, std::uint64_t(tensor.numel) * tensor.width,
                            std::move(open), nullptr, nullptr});
    }
    for (const ZipMember* member : part)
        if (!whole.contains(member))
            unread_.push_back(
                [file, member] { return std::make_unique<MemberStream>(*member, file->read(), file->source()); });
}

void TensorFile::open_zip(const fs::path& path) {
    const auto file = std::make_shared<Descriptor>(Descriptor::open(path, O_RDONLY, "read"));
    const ReadAt read = [file](std::uint64_t offset, char* out, std::size_t bytes) {
        file->read_at(offset, out, bytes);
    };
    std::vector<ZipMember> members = zip_members(read, file->size(), path.string());
    if (TorchFile::is_one(members))
        open_torch(TorchFile(read, std::move(members), file->size(), path.string()));
    else
        open_npz(path, read, std::move(members));
}

TensorFile::TensorFile(const fs::path& path) {
    std::error_code ignored;
    const FileKind kind = fs::is_directory(path, ignored) ? FileKind::safetensors : kind_of(path);
    check<IoError>(kind != FileKind::old_torch,
                   "{}: saved by a PyTorch before 1.6; save it anew: torch.save(torch.load(FILE), FILE)",
                   path.string());
    check<IoError>(kind != FileKind::npy,
                   "{}: a single array in NumPy's .npy format, which has no name for it; save it as .npz: "
                   "np.savez(FILE, NAME=np.load({}))",
                   path.string(), Quoted{path.filename().string()});
    kind == FileKind::zip ? open_zip(path) : open_safetensors(path);
}

}  // namespace invar
