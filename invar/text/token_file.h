// Files of tokens, as nanoGPT and llm.c write them: read by position and never into memory whole, several of them as
// one sequence; and written bit by bit, to appear when they are complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/io/file.h"
#include "invar/text/added_tokens.h"  // TokenId

namespace invar::text {

// uint16 and uint32 are bare numbers, as in nanoGPT. llm.c has 1 KiB in front that says which, and how many. A file to
// be read is llm.c's where it begins like that, and uint16 where not; one to be written is uint16 where the vocabulary
// fits, and llm.c's where not, since bare numbers do not tell how wide they are.
enum class TokenFormat { automatic, uint16, uint32, llmc };
TokenFormat parse_token_format(std::string_view name);  // "uint16", "uint32", "llmc"

// A file; all files *.bin of a folder; or those that a pattern with * and ? finds. In the order of their names, at
// least one.
std::vector<std::filesystem::path> find_token_files(const std::string& where);

class TokenFile {
  public:
    explicit TokenFile(const std::vector<std::filesystem::path>& shards, TokenFormat format = TokenFormat::automatic);
    explicit TokenFile(const std::string& where, TokenFormat format = TokenFormat::automatic)
        : TokenFile(find_token_files(where), format) {}

    // Tokens of all shards together.
    std::uint64_t size() const { return begins_.back(); }
    // `count` tokens from `begin` on. May be called by many threads at once.
    void read(std::uint64_t begin, std::size_t count, std::int64_t* out) const;
    std::size_t shards() const { return shards_.size(); }

  private:
    struct Shard {
        Descriptor file;
        std::uint64_t offset = 0;  // bytes before the first token
        std::size_t width = 2;     // bytes a token
    };
    static Shard open(const std::filesystem::path& path, TokenFormat format, std::uint64_t& tokens);
    std::vector<Shard> shards_;
    std::vector<std::uint64_t> begins_ = {0};  // of each shard in the sequence, and its end
};

class TokenWriter {
  public:
    // A UsageError where the vocabulary does not fit the format.
    TokenWriter(const std::filesystem::path& path, TokenFormat format, std::size_t vocabulary_size);
    void write(std::span<const TokenId> tokens);
    // Only now is there a file of that name.
    void commit();

    std::uint64_t count() const { return count_; }
    std::size_t bytes_per_token() const { return width_; }
    std::string format_name() const;  // "uint16", "llmc uint32"

  private:
    std::string name_;
    std::size_t vocabulary_size_;
    TokenFormat format_;
    std::size_t width_;
    AtomicFile file_;
    std::string buffer_;
    std::uint64_t count_ = 0;
};

}  // namespace invar::text
