// Zip archives made by hand, right or wrong in any place.
#pragma once

#include <zlib.h>

#include <string>
#include <vector>

namespace invar::testing {

inline std::string little(std::uint64_t value, int width) {
    std::string bytes;
    for (int i = 0; i < width; ++i) bytes += char(value >> (8 * i));
    return bytes;
}

inline std::string deflated(const std::string& plain) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
    std::string packed(deflateBound(&stream, plain.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
    stream.avail_in = uInt(plain.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = uInt(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    return packed;
}

inline std::uint32_t crc_of(const std::string& bytes) {
    return std::uint32_t(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), uInt(bytes.size())));
}

class ZipMaker {
  public:
    enum class Large { no, yes };  // sizes and places of 64 bits, in extra fields

    ZipMaker& add(const std::string& name, const std::string& plain, bool deflate = false, Large large = Large::no) {
        const std::string packed = deflate ? deflated(plain) : plain;
        return add_raw(name, packed, plain.size(), crc_of(plain), deflate, large);
    }
    ZipMaker& add_raw(const std::string& name, const std::string& packed, std::uint64_t size, std::uint32_t crc,
                      bool deflate, Large large = Large::no) {
        const std::uint64_t local = archive_.size();
        archive_ += little(0x04034b50, 4) + little(20, 2) + little(0, 2) + little(deflate ? 8 : 0, 2) + little(0, 4) +
                    little(crc, 4) + little(packed.size(), 4) + little(size, 4) + little(name.size(), 2) +
                    little(0, 2) + name + packed;
        entry(name, packed.size(), size, crc, deflate, local, large);
        return *this;
    }
    // A line of the directory alone, which may point anywhere.
    ZipMaker& entry(const std::string& name, std::uint64_t packed, std::uint64_t size, std::uint32_t crc, bool deflate,
                    std::uint64_t local, Large large = Large::no) {
        const bool is_large = large == Large::yes;
        const std::string extra =
            is_large ? little(1, 2) + little(24, 2) + little(size, 8) + little(packed, 8) + little(local, 8) : "";
        const std::uint64_t elsewhere = 0xffffffff;
        directory_ += little(0x02014b50, 4) + little(20, 2) + little(20, 2) + little(0, 2) +
                      little(deflate ? 8 : 0, 2) + little(0, 4) + little(crc, 4) +
                      little(is_large ? elsewhere : packed, 4) + little(is_large ? elsewhere : size, 4) +
                      little(name.size(), 2) + little(extra.size(), 2) + little(0, 2) + little(0, 2) + little(0, 2) +
                      little(0, 4) + little(is_large ? elsewhere : local, 4) + name + extra;
        ++count_;
        large_ = large_ || is_large;
        return *this;
    }
    std::string bytes() const {
        const std::uint64_t begin = archive_.size(), end = begin + directory_.size();
        std::string all = archive_ + directory_;
        if (large_)
            all += little(0x06064b50, 4) + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
                   little(count_, 8) + little(count_, 8) + little(directory_.size(), 8) + little(begin, 8) +
                   little(0x07064b50, 4) + little(0, 4) + little(end, 8) + little(1, 4);
        return all + little(0x06054b50, 4) + little(0, 4) + little(count_, 2) + little(count_, 2) +
               little(directory_.size(), 4) + little(large_ ? 0xffffffff : begin, 4) + little(0, 2);
    }
    std::uint64_t size() const { return archive_.size(); }

  private:
    std::string archive_, directory_;
    std::uint64_t count_ = 0;
    bool large_ = false;
};

}  // namespace invar::testing
