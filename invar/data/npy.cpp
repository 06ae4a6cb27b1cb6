#include "invar/data/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr std::uint8_t kMagic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

// What stands behind 'key': in the header's Python dictionary.
std::string_view value_of(std::string_view text, std::string_view key, const std::string& file) {
    for (const char quote : {'\'', '"'}) {
        const std::string wanted = fmt::format("{0}{1}{0}", quote, key);
        std::size_t at = text.find(wanted);
        if (at == text.npos) continue;
        at = text.find_first_not_of(" :", at + wanted.size());
        if (at != text.npos) return text.substr(at);
    }
    fail<IoError>("{}: its NumPy header has no '{}'; fetch the file again", file, key);
}

// What an array of a type that we do not read holds.
const char* what_is(std::string_view descr, char kind) {
    if (descr.empty()) return "records of several fields";
    switch (descr.size() > 1 ? descr[1] : kind) {
        case 'U':
        case 'S':
        case 'a':
            return "text";
        case 'O':
            return "Python objects, which only pickle reads,";
        case 'c':
            return "complex numbers";
        case 'M':
        case 'm':
            return "dates or times";
        case 'V':
            return "bytes without a meaning";
        case 'f':
        case 'i':
        case 'u':
            return "numbers of an unusual width";
        default:
            return "elements";
    }
}

void read_descr(NpyHeader& header, std::string_view value) {
    const std::size_t end = value.size() > 1 ? value.find(value[0], 1) : value.npos;
    const bool quoted = end != value.npos && (value[0] == '\'' || value[0] == '"');
    const std::string_view descr = quoted ? value.substr(1, end - 1) : std::string_view();
    const std::string_view digits = descr.size() > 2 ? descr.substr(2) : std::string_view();
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), header.width);
    const bool read = error == std::errc() && stop == digits.data() + digits.size();
    header.kind = read ? descr[1] : 0;
    header.big_endian = read && descr[0] == '>';
    const bool whole = header.kind == 'i' || header.kind == 'u';
    const bool known = (header.kind == 'f' && (header.width == 2 || header.width == 4 || header.width == 8)) ||
                       (whole && (header.width == 1 || header.width == 2 || header.width == 4 || header.width == 8)) ||
                       (header.kind == 'b' && header.width == 1);
    header.descr = quoted ? descr.substr(0, 40) : value.substr(0, value.find(']') + 1);
    header.is_numbers = known && std::strchr("<>|=", descr[0]) != nullptr;
    if (!header.is_numbers) header.width = 1;  // as little as an element may have
}

void read_shape(NpyHeader& header, std::string_view value, const std::string& file, std::size_t most) {
    const std::size_t end = value.find(')');
    check<IoError>(value.starts_with('(') && end != value.npos, "{}: its NumPy header has no shape", file);
    std::string_view rest = value.substr(1, end - 1);
    header.count = 1;
    while (true) {
        const std::size_t first = rest.find_first_not_of(" ,");
        if (first == rest.npos) break;
        rest.remove_prefix(first);
        std::int64_t size = 0;
        const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
        check<IoError>(error == std::errc() && size >= 0, "{}: its NumPy header has a shape that is none: {}", file,
                       Quoted{value.substr(0, 60)});
        rest.remove_prefix(std::size_t(stop - rest.data()));
        check<IoError>(header.shape.rank() < kMaxRank, "{}: an array of more than {} dimensions", file, kMaxRank);
        check<IoError>(size == 0 || header.count <= most / std::size_t(size),
                       "{}: its NumPy header gives shape {}, more than the {} bytes a data file may hold", file,
                       value.substr(0, std::min<std::size_t>(end + 1, 100)), most);
        header.count *= std::size_t(size);
        header.shape.push_back(size);
    }
    check<IoError>(header.count <= most / header.width,
                   "{}: its NumPy header gives shape {}, more than the {} bytes a data file may hold", file,
                   header.shape.str(), most);
}

// How long the header is, from the first bytes.
std::size_t header_end(std::span<const std::uint8_t> bytes, const std::string& file) {
    check<IoError>(is_npy(bytes) && bytes.size() >= 10, "{}: no array of NumPy's: it does not begin as one", file);
    const int digits = bytes[6] == 1 ? 2 : 4;  // of the length; since version 2 it has four bytes
    check<IoError>(bytes[6] >= 1 && bytes[6] <= 3 && bytes.size() >= std::size_t(8 + digits),
                   "{}: version {} of NumPy's format is not known", file, bytes[6]);
    std::size_t length = 0;
    for (int i = digits - 1; i >= 0; --i) length = length << 8 | bytes[std::size_t(8 + i)];
    check<IoError>(length <= kMostNpyHeader - 12, "{}: a NumPy header of {} bytes, more than the {} it may have", file,
                   length, kMostNpyHeader - 12);
    return std::size_t(8 + digits) + length;
}

// The header of an array that is to become a tensor, and so must hold numbers.
NpyHeader parse_header(std::span<const std::uint8_t> bytes, const std::string& file) {
    NpyHeader header = parse_npy_header(bytes, file, kMaxDataBytes);
    const std::string_view descr = header.descr;
    check<IoError>(header.is_numbers,
                   "{}: holds {} (NumPy type {}), not numbers of 1, 2, 4 or 8 bytes; save it as float32 or int64", file,
                   what_is(descr.starts_with('[') ? "" : descr, header.kind), Quoted{descr});
    return header;
}

// Element by element into its place; in Fortran's order the first index runs fastest.
template <class Stored, class Kept>
void read_elements(const NpyHeader& header, const std::uint8_t* from, Kept* to, const std::string& file) {
    const bool swap = header.big_endian != (std::endian::native == std::endian::big) && sizeof(Stored) > 1;
    const Shape strides = contiguous_strides(header.shape);
    Shape place = Shape::filled(header.shape.rank(), 0);
    for (std::size_t i = 0; i < header.count; ++i, from += sizeof(Stored)) {
        std::uint8_t raw[sizeof(Stored)];
        std::memcpy(raw, from, sizeof(Stored));
        if (swap) std::reverse(raw, raw + sizeof(Stored));
        Stored value{};
        std::memcpy(static_cast<void*>(&value), raw, sizeof value);
        std::int64_t at = std::int64_t(i);
        if (header.fortran) {
            at = 0;
            for (int d = 0; d < place.rank(); ++d) at += place[d] * strides[d];
            for (int d = 0; d < place.rank() && ++place[d] == header.shape[d]; ++d) place[d] = 0;
        }
        if constexpr (std::is_same_v<Stored, std::uint64_t>)
            check<IoError>(value <= std::uint64_t(std::numeric_limits<std::int64_t>::max()),
                           "{}: {} is {}, beyond what i64 holds", file, place_of(std::size_t(at), header.shape), value);
        if constexpr (std::is_same_v<Stored, Kept>)
            to[at] = value;
        else
            to[at] = static_cast<Kept>(value);
    }
}

Tensor tensor_of(const NpyHeader& header, std::span<const std::uint8_t> bytes, const std::string& file) {
    check<IoError>(bytes.size() == header.end(), "{}: holds {} bytes, expected {} for {}; fetch the file again", file,
                   bytes.size(), header.end(), header.shape.str());
    const PurposeScope purpose(Purpose::data);
    const auto make = [&]<class Stored, class Kept>(TypeTag<Stored>, TypeTag<Kept>, Dtype dtype) {
        const Tensor tensor = Tensor::empty(header.shape, dtype);
        read_elements<Stored>(header, bytes.data() + header.begin, static_cast<Kept*>(tensor.raw()), file);
        return tensor;
    };
    using I64 = TypeTag<std::int64_t>;
    const std::string type = fmt::format("{}{}", header.kind, header.width);
    if (type == "f8") return make(TypeTag<double>{}, TypeTag<double>{}, Dtype::f64);
    if (type == "f4") return make(TypeTag<float>{}, TypeTag<float>{}, Dtype::f32);
    if (type == "f2") return make(TypeTag<f16>{}, TypeTag<f16>{}, Dtype::f16);
    if (type == "i8") return make(I64{}, I64{}, Dtype::i64);
    if (type == "i4") return make(TypeTag<std::int32_t>{}, TypeTag<std::int32_t>{}, Dtype::i32);
    if (type == "i2") return make(TypeTag<std::int16_t>{}, I64{}, Dtype::i64);
    if (type == "i1") return make(TypeTag<std::int8_t>{}, I64{}, Dtype::i64);
    if (type == "u8") return make(TypeTag<std::uint64_t>{}, I64{}, Dtype::i64);
    if (type == "u4") return make(TypeTag<std::uint32_t>{}, I64{}, Dtype::i64);
    if (type == "u2") return make(TypeTag<std::uint16_t>{}, I64{}, Dtype::i64);
    return make(TypeTag<std::uint8_t>{}, TypeTag<std::uint8_t>{}, type == "b1" ? Dtype::boolean : Dtype::u8);
}

}  // namespace

bool is_npy(std::span<const std::uint8_t> bytes) {
    return bytes.size() >= sizeof kMagic && std::equal(std::begin(kMagic), std::end(kMagic), bytes.begin());
}

NpyHeader parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& file, std::size_t most) {
    NpyHeader header;
    header.begin = header_end(bytes, file);
    check<IoError>(bytes.size() >= header.begin, "{}: ends within its NumPy header; fetch the file again", file);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header.begin);
    read_descr(header, value_of(text, "descr", file));
    header.fortran = value_of(text, "fortran_order", file).starts_with("True");
    read_shape(header, value_of(text, "shape", file), file, most);
    return header;
}

Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& file) {
    return tensor_of(parse_header(bytes, file), bytes, file);
}

NpzFile::NpzFile(std::span<const std::uint8_t> archive, const std::string& file) : file_(file) {
    for (ZipEntry& entry : zip_entries(archive, file)) {
        const std::string name =
            entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
        const bool fresh = entries_.emplace(name, std::move(entry)).second;
        check<IoError>(fresh, "{}: {}: there are two arrays of this name", file, name);
    }
}

std::vector<std::string> NpzFile::names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
}

const ZipEntry& NpzFile::find(const std::string& name) const {
    const auto found = entries_.find(name);
    check<IoError>(found != entries_.end(), "{}: there is no array {}", file_, Quoted{name});
    return found->second;
}

// The header first: it says how much may follow, so that what is unpacked follows the data and no claim.
bool NpzFile::holds_numbers(const std::string& name) const {
    try {
        parse_header(unzip(find(name), file_, kMostNpyHeader), file_);
        return true;
    } catch (const IoError&) {
        return false;
    }
}

Tensor NpzFile::array(const std::string& name) const {
    const ZipEntry& entry = find(name);
    const std::string where = fmt::format("{}: {}", file_, name);
    const NpyHeader header = parse_header(unzip(entry, where, kMostNpyHeader), where);
    return tensor_of(header, unzip(entry, where, header.end() + 1), where);
}

std::string place_of(std::size_t element, const Shape& shape) {
    const std::int64_t rows = shape.rank() > 0 ? std::max<std::int64_t>(1, shape[0]) : 1;
    const std::size_t width = std::size_t(std::max<std::int64_t>(1, shape.numel() / rows));
    return fmt::format("row {}{}", element / width, width > 1 ? fmt::format(", column {}", element % width) : "");
}

}  // namespace invar
