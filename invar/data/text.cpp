// Anyone's text, a plain file: tokenised when it is opened, its end kept to validate on.
#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/data/token_windows.h"
#include "invar/io/file.h"
#include "invar/text/tokenizer.h"

namespace invar {

namespace {

struct TextOptions {
    std::string path;
    std::string tokenizer = "bytes";
    std::int64_t length = 256;
    double test_share = 0.1;
    bool documents = false;
};

constexpr std::size_t kLargest = std::size_t(2) << 30;  // larger ones are worth `invar tokenize` and data=tokens

std::shared_ptr<const Dataset> open_text(const TextOptions& o, Split split, std::uint64_t) {
    check<UsageError>(!o.path.empty(), "data=text needs a file: data.path=FILE");
    const text::Tokenizer tokenizer = text::tokenizer_by_name(o.tokenizer);
    auto tokens = std::make_shared<const std::vector<text::TokenId>>(tokenizer.encode(read_file(o.path, kLargest)));
    TokenWindows::Source source{
        .name = o.path, .length = o.length, .vocabulary = std::int64_t(tokenizer.vocabulary_size())};
    if (o.documents) source.mark_documents(tokenizer);
    source.take_share(split, std::int64_t(tokens->size()), o.test_share, "data.test_share");
    return std::make_shared<TokenWindows>(source, [tokens](std::int64_t begin, std::int64_t n, std::int64_t* out) {
        for (std::int64_t i = 0; i < n; ++i) out[i] = std::int64_t((*tokens)[std::size_t(begin + i)]);
    });
}

DataInfo describe(const TextOptions& o) {
    return {{o.length}, std::int64_t(text::tokenizer_by_name(o.tokenizer).vocabulary_size())};
}

using T = TextOptions;
const RegisterData<T> kText{
    "text",
    "A text of your own, from a plain file.",
    open_text,
    {key("path", &T::path, any(), "The file."),
     key("tokenizer", &T::tokenizer, any(), "bytes, a token a byte; or a tokenizer.json, or a folder that holds one."),
     key("length", &T::length, within(1, 1 << 24), "Tokens in a sample."),
     key("documents", &T::documents, any(), "Attention stays within a document: the token that ends a text ends one."),
     key("test_share", &T::test_share, below(0, 1), "Share of the tokens, at the end, to validate on.")},
    describe};

}  // namespace

}  // namespace invar
