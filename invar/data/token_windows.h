// Rows of tokens cut from a long one: what language models are trained on, wherever the tokens come from.
#pragma once

#include <functional>

#include "invar/data/dataset.h"
#include "invar/text/tokenizer.h"

namespace invar {

// Sample i is the tokens from i * length on, as x, and those one further on, as y; samples overlap by that one token.
// `documents`, where it is asked for, counts the documents of each row.
class TokenWindows final : public Dataset {
  public:
    // Writes `count` tokens from the place `begin` on; called by several threads.
    using Read = std::function<void(std::int64_t begin, std::int64_t count, std::int64_t* out)>;

    struct Source {
        std::string name;                 // in messages
        std::int64_t begin = 0, end = 0;  // of the tokens that are this split's
        std::int64_t length = 0, vocabulary = 0;
        std::string too_few = {};       // in a message: whose tokens these are, of how many, and what to do about it
        std::int64_t end_of_text = -1;  // what ends a document, where samples are to say which one a token is of

        // From here on samples say which document each token is of. A UsageError where the tokenizer has no such token.
        void mark_documents(const text::Tokenizer& tokenizer);
        // All `count` tokens but the share at the end that is to validate on; or that share. `keys` decide which.
        void take_share(Split split, std::int64_t count, double test_share, const std::string& keys);
    };
    // A UsageError where the tokens are too few for one sample.
    TokenWindows(Source source, Read read);

    std::string name() const override { return source_.name; }
    std::int64_t size() const override { return (source_.end - source_.begin - 1) / source_.length; }
    DataInfo info() const override { return {{source_.length}, source_.vocabulary}; }
    Batch read(std::span<const std::int64_t> indices) const override;

  private:
    // Of tokens [n, length]: in each row 0, and one more behind each token that ends a document.
    Tensor documents_of(const Tensor& rows) const;

    Source source_;
    Read read_;
};

}  // namespace invar
