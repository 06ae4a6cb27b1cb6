#include "invar/io/protobuf.h"

#include <bit>

#include "invar/core/error.h"

namespace invar {

std::uint64_t little_endian_number(std::string_view bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
}

std::string_view ProtobufReader::take(std::uint64_t count) {
    check<IoError>(count <= rest_.size(), "{}: a field of {} bytes, where {} are left; the file is damaged", where_,
                   count, rest_.size());
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
}

std::uint64_t ProtobufReader::take_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const auto byte = static_cast<unsigned char>(take(1)[0]);
        value |= std::uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    fail<IoError>("{}: a number of more than 64 bits; the file is damaged", where_);
}

std::uint64_t ProtobufReader::take_fixed(std::size_t width) {
    return little_endian_number(take(width));
}

bool ProtobufReader::next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = take_varint();
    check<IoError>(key >> 3 != 0 && key >> 3 < (std::uint64_t(1) << 29),
                   "{}: a field of the number {}; the file is damaged", where_, key >> 3);
    field_ = int(key >> 3);
    type_ = static_cast<WireType>(key & 7);
    bytes_ = {};
    switch (type_) {
        case kVarint:
            number_ = take_varint();
            return true;
        case kFixed64:
            number_ = take_fixed(8);
            return true;
        case kFixed32:
            number_ = take_fixed(4);
            return true;
        case kBytes:
            bytes_ = take(take_varint());
            return true;
    }
    fail<IoError>("{}: a field of the unknown type {}; the file is damaged", where_, key & 7);
}

double ProtobufReader::float_value() const {
    return type_ == kFixed64 ? std::bit_cast<double>(number_)
                             : double(std::bit_cast<float>(static_cast<std::uint32_t>(number_)));
}

}  // namespace invar
