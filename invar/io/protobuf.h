// The fields of a protobuf message one by one, without its schema: a number, a wire type, and the value as it lies in
// the bytes. What a message holds beyond its end, or in groups, is damage.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

class ProtobufReader {
  public:
    // `where` names the message in errors; both must outlive this.
    ProtobufReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

    // The next field; false at the end. Throws IoError.
    bool next();
    int field() const { return field_; }

    bool is_number() const { return type_ == kVarint; }
    bool is_bytes() const { return type_ == kBytes; }
    bool is_fixed32() const { return type_ == kFixed32; }
    bool is_fixed64() const { return type_ == kFixed64; }
    std::uint64_t number() const { return number_; }   // of a varint, or the bits of a fixed one
    std::string_view bytes() const { return bytes_; }  // of a text, a message or packed values
    double float_value() const;                        // of fixed bits
    ProtobufReader message() const { return {bytes_, where_}; }

    enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  private:
    std::uint64_t take_varint();
    std::uint64_t take_fixed(std::size_t width);
    std::string_view take(std::uint64_t count);
    std::string_view rest_, bytes_;
    const std::string& where_;
    std::uint64_t number_ = 0;
    int field_ = 0;
    WireType type_ = kVarint;
};

// Bytes of a little-endian number, at most eight.
std::uint64_t little_endian_number(std::string_view bytes);

}  // namespace invar
