#include "invar/data/file_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "invar/core/error.h"
#include "invar/io/file.h"

namespace invar {

namespace {

constexpr std::size_t kFirstChunk = std::size_t(64) << 10;

// Room for the next piece: what is there doubles, so that memory follows the data and not what a header claims.
std::size_t grown(std::size_t size, std::size_t limit) {
    return std::min(limit, std::max(kFirstChunk, 2 * size));
}

class Inflater {
  public:
    explicit Inflater(int window_bits) { check(inflateInit2(&stream, window_bits) == Z_OK, "zlib: out of memory"); }
    ~Inflater() { inflateEnd(&stream); }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;
    z_stream stream{};
};

std::optional<std::filesystem::path> find_in(const std::filesystem::path& folder, const std::string& file) {
    for (const char* suffix : {"", ".gz"}) {
        const std::filesystem::path path = folder / (file + suffix);
        std::error_code ignored;
        if (std::filesystem::is_regular_file(path, ignored)) return path;
    }
    return std::nullopt;
}

Bytes unpack(std::span<const std::uint8_t> packed, const std::string& file, std::size_t limit, bool gzip) {
    const char* const kind = gzip ? "gzip" : "packed";
    check<IoError>(packed.size() <= kMaxDataBytes, "{}: larger than {} bytes, the most a data file may hold", file,
                   kMaxDataBytes);
    Inflater inflater(gzip ? 16 + MAX_WBITS : -MAX_WBITS);
    z_stream& stream = inflater.stream;
    stream.next_in = const_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());

    Bytes bytes;
    std::size_t held = 0;
    while (held < limit) {
        if (held == bytes.size()) bytes.resize(grown(held, limit));
        const std::size_t room = std::min(bytes.size() - held, kMaxDataBytes);
        stream.next_out = bytes.data() + held;
        stream.avail_out = static_cast<uInt>(room);
        const int status = inflate(&stream, Z_NO_FLUSH);
        held += room - stream.avail_out;
        if (status == Z_STREAM_END) {
            if (stream.avail_in == 0) break;
            // A gzip file may be several, one after another; anything else behind the first is damage.
            const bool another = gzip && is_gzip({stream.next_in, stream.avail_in});
            check<IoError>(another, "{}: {} stray bytes after the end of its {} data; fetch the file again", file,
                           stream.avail_in, kind);
            check<IoError>(inflateReset(&stream) == Z_OK, "{}: zlib cannot start its next part", file);
            continue;
        }
        const bool cut_short =
            status == Z_BUF_ERROR || (status == Z_OK && stream.avail_in == 0 && stream.avail_out != 0);
        check<IoError>(!cut_short, "{}: its {} data end too early, after {} unpacked bytes; fetch the file again", file,
                       kind, held);
        check<IoError>(status == Z_OK, "{}: damaged {} data ({}); fetch the file again", file, kind,
                       stream.msg != nullptr ? stream.msg : "unknown cause");
    }
    bytes.resize(held);
    return bytes;
}

}  // namespace

std::string read_data_file(const std::filesystem::path& path) {
    return read_file(path, kMaxDataBytes);
}

bool is_gzip(std::span<const std::uint8_t> bytes) {
    return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

Bytes gunzip(std::span<const std::uint8_t> packed, const std::string& file, std::size_t limit) {
    return unpack(packed, file, limit, true);
}

Bytes inflate_bytes(std::span<const std::uint8_t> packed, const std::string& file, std::size_t limit) {
    return unpack(packed, file, limit, false);
}

std::optional<std::vector<std::filesystem::path>> find_files(const std::vector<std::filesystem::path>& folders,
                                                             const std::vector<std::string>& files) {
    for (const auto& folder : folders) {
        std::vector<std::filesystem::path> paths;
        for (const std::string& file : files) {
            if (auto path = find_in(folder, file)) paths.push_back(std::move(*path));
        }
        if (paths.size() == files.size()) return paths;
    }
    return std::nullopt;
}

}  // namespace invar
