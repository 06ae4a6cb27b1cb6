// Tokenizer: text to tokens and back, by the tokenizer.json of a Hugging Face model (byte-level BPE as in GPT-2, Qwen 2
// and Llama 3; BPE over characters with bytes to fall back on as in Llama 2), or a byte a token. docs/TEXT.md tells
// more.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/text/added_tokens.h"
#include "invar/text/bpe.h"  // WordCache

namespace invar::text {

struct TokenizerParts;

// Never changes, costs little to copy, and may be used by many threads at once.
class Tokenizer {
  public:
    explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

    // Special tokens in the text become what they are; none are put around it. Bytes that are not UTF-8 stay bytes
    // where the tokenizer has tokens for all of them, and become U+FFFD where not.
    std::vector<TokenId> encode(std::string_view text) const;

    // Encodes the beginning of a longer text, to be gone on with behind it: `next` is what follows, a few thousand
    // bytes of it, or nothing at its end. Nothing comes back where it is not certain that the tokens of the whole would
    // be these and then those of the rest; then take a longer piece.
    std::optional<std::vector<TokenId>> encode_part(std::string_view text, std::string_view next, bool begins_document,
                                                    WordCache& cache) const;

    // The same for what the text is cut into before the model sees it: calls piece(text) for each, and nothing for
    // special tokens. False where it is not certain; some pieces may have come by then.
    using Piece = std::function<void(std::string_view)>;
    bool each_piece(std::string_view text, std::string_view next, bool begins_document, const Piece& piece) const;

    // The bytes that the tokens stand for; half a character where it was cut there. An id that no token can have is a
    // UsageError.
    std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

    // One more than the largest id.
    std::size_t vocabulary_size() const;
    // Of a token as the file spells it; special tokens come first.
    std::optional<TokenId> id_of(std::string_view name) const;
    const std::vector<AddedToken>& added_tokens() const;
    // What separates documents: <|endoftext|>, or what others call it.
    std::optional<TokenId> end_of_text() const;
    // The file, or "bytes".
    const std::string& name() const;

  private:
    bool encode_with(std::string_view text, std::string_view next, bool begins_document, const Piece& piece,
                     const std::function<void(TokenId)>& special) const;
    std::shared_ptr<const TokenizerParts> parts_;
};

// A tokenizer.json, or a folder that holds one. IoError where it is not one, or asks for what is not supported.
Tokenizer load_tokenizer(const std::filesystem::path& path);
// From its text; `source` names it in errors.
Tokenizer parse_tokenizer(std::string_view json, std::string_view source);

// A token a byte, its value being the id, and <|endoftext|> as 256.
Tokenizer bytes_tokenizer(bool with_end_of_text = true);
// As keys and options name one: `bytes`, or what load_tokenizer takes.
Tokenizer tokenizer_by_name(const std::string& name);

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

}  // namespace invar::text
