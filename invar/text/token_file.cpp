#include "invar/text/token_file.h"

#include <fcntl.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

#include "invar/core/error.h"

namespace invar::text {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::size_t kHeaderNumbers = 256;
using Header = std::array<std::int32_t, kHeaderNumbers>;
constexpr std::uint64_t kHeaderBytes = sizeof(Header);

// What llm.c's files begin with: a number of its own and a version, which go with the width of the tokens.
struct LlmcKind {
    std::int32_t magic, version;
    std::size_t width;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr std::uint64_t kMostLlmcTokens = std::numeric_limits<std::int32_t>::max();

constexpr std::size_t kNarrowVocabulary = 65536;
constexpr std::size_t kBuffered = std::size_t(1) << 20;

TokenFormat chosen(TokenFormat format, std::size_t vocabulary_size) {
    if (format != TokenFormat::automatic) return format;
    return vocabulary_size <= kNarrowVocabulary ? TokenFormat::uint16 : TokenFormat::llmc;
}

template <class T>
void widen(const char* raw, std::size_t count, std::int64_t* out) {
    for (std::size_t i = 0; i < count; ++i) {
        T token;
        std::memcpy(&token, raw + i * sizeof(T), sizeof(T));
        out[i] = token;
    }
}

}  // namespace

TokenFormat parse_token_format(std::string_view name) {
    if (name == "uint16") return TokenFormat::uint16;
    if (name == "uint32") return TokenFormat::uint32;
    check<UsageError>(name == "llmc", "the format '{}' is none of uint16, uint32, llmc", name.substr(0, 80));
    return TokenFormat::llmc;
}

std::vector<fs::path> find_token_files(const std::string& where) {
    std::vector<fs::path> files;
    std::error_code error;
    if (fs::is_directory(where, error)) {
        for (const fs::directory_entry& entry : fs::directory_iterator(where))
            if (entry.path().extension() == ".bin" && entry.is_regular_file()) files.push_back(entry.path());
        check<IoError>(!files.empty(), "{}: the folder holds no .bin file of tokens", where);
    } else if (!fs::exists(where, error) && where.find_first_of("*?[") != where.npos) {
        glob_t found{};
        const std::unique_ptr<glob_t, decltype(&::globfree)> owner(&found, ::globfree);
        if (::glob(where.c_str(), 0, nullptr, &found) == 0)
            files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
        check<IoError>(!files.empty(), "{}: no file is called like that", where);
    } else {
        return {where};
    }
    std::sort(files.begin(), files.end());
    return files;
}

TokenFile::TokenFile(const std::vector<fs::path>& shards, TokenFormat format) {
    check<UsageError>(!shards.empty(), "a file of tokens is made of at least one file");
    for (const fs::path& path : shards) {
        std::uint64_t tokens = 0;
        shards_.push_back(open(path, format, tokens));
        begins_.push_back(begins_.back() + tokens);
    }
}

TokenFile::Shard TokenFile::open(const fs::path& path, TokenFormat format, std::uint64_t& tokens) {
    Shard shard{Descriptor::open(path, O_RDONLY, "read")};
    const std::uint64_t bytes = shard.file.size();
    Header header{};
    shard.file.read_at(0, reinterpret_cast<char*>(header.data()), std::size_t(std::min(bytes, kHeaderBytes)));
    const auto* kind = std::find_if(std::begin(kLlmcKinds), std::end(kLlmcKinds),
                                    [&](const LlmcKind& each) { return each.magic == header[0]; });
    const bool known = kind != std::end(kLlmcKinds);
    check<IoError>(known || format != TokenFormat::llmc, "{}: it does not begin as llm.c's files do", path.string());
    if (known && (format == TokenFormat::llmc || format == TokenFormat::automatic)) {
        check<IoError>(bytes >= kHeaderBytes,
                       "{}: it begins as llm.c's files do, but has {} of the {} bytes of their header; it is cut off",
                       path.string(), bytes, kHeaderBytes);
        check<IoError>(header[1] == kind->version, "{}: it is of llm.c's version {}, but {} is what there is for {}",
                       path.string(), header[1], kind->version, kind->magic);
        check<IoError>(header[2] >= 0, "{}: its header says {} tokens", path.string(), header[2]);
        tokens = std::uint64_t(header[2]);
        shard.offset = kHeaderBytes;
        shard.width = kind->width;
        const std::uint64_t expected = kHeaderBytes + tokens * shard.width;
        check<IoError>(bytes == expected, "{}: it has {} bytes, but its header says {} tokens, which makes {}; {}",
                       path.string(), bytes, tokens, expected, bytes < expected ? "it is cut off" : "it is damaged");
    } else {
        shard.width = format == TokenFormat::uint32 ? 4 : 2;
        check<IoError>(bytes % shard.width == 0,
                       "{}: its {} bytes are not whole tokens of {} each; it is cut off, or of another format",
                       path.string(), bytes, shard.width);
        tokens = bytes / shard.width;
    }
    check<IoError>(tokens > 0, "{}: it holds no tokens", path.string());
    return shard;
}

void TokenFile::read(std::uint64_t begin, std::size_t count, std::int64_t* out) const {
    check<UsageError>(begin <= size() && count <= size() - begin, "tokens {} to {} were asked for, but there are {}",
                      begin, begin + count, size());
    std::size_t at = std::size_t(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    for (; count > 0; ++at) {
        const Shard& shard = shards_[at];
        const std::uint64_t from = begin - begins_[at];
        const auto here = std::size_t(std::min<std::uint64_t>(count, begins_[at + 1] - begin));
        // Read into the end of the room that the wide ones will take, and widened from the front: what is written never
        // catches up with what is still to be read.
        char* raw = reinterpret_cast<char*>(out) + here * (sizeof(std::int64_t) - shard.width);
        shard.file.read_at(shard.offset + from * shard.width, raw, here * shard.width);
        shard.width == 2 ? widen<std::uint16_t>(raw, here, out) : widen<std::uint32_t>(raw, here, out);
        out += here;
        begin += here;
        count -= here;
    }
}

TokenWriter::TokenWriter(const fs::path& path, TokenFormat format, std::size_t vocabulary_size)
    : name_(path.string()),
      vocabulary_size_(vocabulary_size),
      format_(chosen(format, vocabulary_size)),
      width_(format_ == TokenFormat::uint32 || vocabulary_size > kNarrowVocabulary ? 4 : 2),
      file_(path) {
    check<UsageError>(format_ != TokenFormat::uint16 || width_ == 2,
                      "a vocabulary of {} tokens does not fit uint16; choose llmc or uint32", vocabulary_size);
    if (format_ == TokenFormat::llmc)
        buffer_.assign(kHeaderBytes, '\0');  // written in the end, when the count is known
}

std::string TokenWriter::format_name() const {
    return fmt::format("{}uint{}", format_ == TokenFormat::llmc ? "llmc " : "", 8 * width_);
}

void TokenWriter::write(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
        check<UsageError>(token < vocabulary_size_, "the token {} is not one of a vocabulary of {}", token,
                          vocabulary_size_);
        char bytes[sizeof token];
        std::memcpy(bytes, &token, sizeof token);
        buffer_.append(bytes, width_);  // little-endian: the low bytes come first
    }
    count_ += tokens.size();
    check<UsageError>(format_ != TokenFormat::llmc || count_ <= kMostLlmcTokens,
                      "{} would have more than the {} tokens that llm.c's header can count; choose the format uint32, "
                      "or write several files",
                      name_, kMostLlmcTokens);
    if (buffer_.size() < kBuffered) return;
    file_.write(buffer_);
    buffer_.clear();
}

void TokenWriter::commit() {
    file_.write(buffer_);
    buffer_.clear();
    if (format_ == TokenFormat::llmc) {
        Header header{};
        const LlmcKind& kind = kLlmcKinds[width_ == 2 ? 0 : 1];
        header[0] = kind.magic;
        header[1] = kind.version;
        header[2] = std::int32_t(count_);
        file_.write_at(0, {reinterpret_cast<const char*>(header.data()), kHeaderBytes});
    }
    file_.commit();
}

}  // namespace invar::text
