// Files of tokens, as `invar tokenize`, nanoGPT and llm.c write them: read by position, several shards as one.
#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/data/token_windows.h"
#include "invar/text/token_file.h"
#include "invar/text/tokenizer.h"

namespace invar {

namespace {

struct TokensOptions {
    std::string path, test_path;
    std::string format = "auto";
    std::string tokenizer;
    std::int64_t vocabulary = 0;
    std::int64_t length = 256;
    double test_share = 0.1;
    bool documents = false;
};

std::int64_t vocabulary_of(const TokensOptions& o) {
    if (o.vocabulary > 0) return o.vocabulary;
    check<UsageError>(!o.tokenizer.empty(),
                      "data=tokens does not know how many tokens there are; say data.vocabulary=N, or "
                      "data.tokenizer=FILE (or bytes), which `sample` needs too");
    return std::int64_t(text::tokenizer_by_name(o.tokenizer).vocabulary_size());
}

std::shared_ptr<const Dataset> open_tokens(const TokensOptions& o, Split split, std::uint64_t) {
    check<UsageError>(!o.path.empty(), "data=tokens needs files of tokens: data.path=FILE, a folder or a pattern");
    const bool own_file = split == Split::test && !o.test_path.empty();
    const std::string& where = own_file ? o.test_path : o.path;
    const text::TokenFormat format =
        o.format == "auto" ? text::TokenFormat::automatic : text::parse_token_format(o.format);
    const auto file = std::make_shared<const text::TokenFile>(where, format);
    const std::int64_t count = std::int64_t(file->size());
    TokenWindows::Source source{.name = where, .end = count, .length = o.length, .vocabulary = vocabulary_of(o)};
    if (o.documents) {
        check<UsageError>(!o.tokenizer.empty(), "data.documents needs data.tokenizer, which knows what ends a text");
        source.mark_documents(text::tokenizer_by_name(o.tokenizer));
    }
    if (o.test_path.empty()) source.take_share(split, count, o.test_share, "data.test_share or data.test_path");
    return std::make_shared<TokenWindows>(source, [file](std::int64_t begin, std::int64_t n, std::int64_t* out) {
        file->read(std::uint64_t(begin), std::size_t(n), out);
    });
}

DataInfo describe(const TokensOptions& o) {
    return {{o.length}, vocabulary_of(o)};
}

using T = TokensOptions;
const RegisterData<T> kTokens{
    "tokens",
    "Files of tokens, as invar tokenize, nanoGPT and llm.c write them.",
    open_tokens,
    {key("path", &T::path, any(), "A file, a folder of *.bin, or a pattern such as train_*.bin."),
     key("test_path", &T::test_path, any(), "The same to validate on; empty takes the end of path."),
     key("format", &T::format, one_of({"auto", "uint16", "uint32", "llmc"}),
         "How tokens are kept; auto is llm.c's where a file begins like that, and uint16 where not."),
     key("tokenizer", &T::tokenizer, any(), "What made them: a tokenizer.json, the folder that holds it, or bytes."),
     key("vocabulary", &T::vocabulary, at_least(0), "How many tokens there are; 0 for the tokenizer's."),
     key("length", &T::length, within(1, 1 << 24), "Tokens in a sample."),
     key("documents", &T::documents, any(), "Attention stays within a document: the token that ends a text ends one."),
     key("test_share", &T::test_share, below(0, 1), "Share of the tokens, at the end, to validate on.")},
    describe};

}  // namespace

}  // namespace invar
