#include "invar/data/token_windows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invar/core/error.h"

namespace invar {

void TokenWindows::Source::take_share(Split split, std::int64_t count, double test_share, const std::string& keys) {
    const std::int64_t cut = count - std::int64_t(std::ceil(test_share * double(count)));
    begin = split == Split::train ? 0 : cut;
    end = split == Split::train ? cut : count;
    too_few = fmt::format(
        ": of {} in all they are those to {} (data.test_share = {}); use a smaller data.length, or another {}", count,
        split == Split::train ? "train on" : "validate on", test_share, keys);
}

void TokenWindows::Source::mark_documents(const text::Tokenizer& tokenizer) {
    const std::optional<text::TokenId> end = tokenizer.end_of_text();
    check<UsageError>(end.has_value(), "data.documents: {} has no token that ends a text", tokenizer.name());
    end_of_text = std::int64_t(*end);
}

Tensor TokenWindows::documents_of(const Tensor& rows) const {
    const Tensor documents = Tensor::empty(rows.shape(), Dtype::i64);
    const std::int64_t* token = rows.data<std::int64_t>();
    std::int64_t* out = documents.data<std::int64_t>();
    for (std::int64_t row = 0; row < rows.size(0); ++row)
        for (std::int64_t i = 0, document = 0; i < rows.size(1); ++i) {
            *out++ = document;
            document += *token++ == source_.end_of_text;
        }
    return documents;
}

TokenWindows::TokenWindows(Source source, Read read) : source_(std::move(source)), read_(std::move(read)) {
    check<UsageError>(source_.end - source_.begin > source_.length,
                      "{}: {} tokens are too few for a sample of data.length = {} and the one behind it{}",
                      source_.name, source_.end - source_.begin, source_.length,
                      source_.too_few.empty() ? "; use a smaller data.length" : source_.too_few);
}

Batch TokenWindows::read(std::span<const std::int64_t> indices) const {
    const std::int64_t n = std::int64_t(indices.size()), length = source_.length;
    Batch batch({{"x", Tensor::empty({n, length}, Dtype::i64)}, {"y", Tensor::empty({n, length}, Dtype::i64)}}, n);
    std::int64_t *x = batch["x"].data<std::int64_t>(), *y = batch["y"].data<std::int64_t>();
    std::vector<std::int64_t> row(std::size_t(length + 1));
    for (const std::int64_t index : indices) {
        check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", source_.name, index, size());
        read_(source_.begin + index * length, length + 1, row.data());
        for (const std::int64_t token : row)
            check<IoError>(token >= 0 && token < source_.vocabulary,
                           "{}: holds token {}, and there are {} (data.vocabulary)", source_.name, token,
                           source_.vocabulary);
        x = std::copy(row.begin(), row.end() - 1, x);
        y = std::copy(row.begin() + 1, row.end(), y);
    }
    if (source_.end_of_text >= 0) batch.set("documents", documents_of(batch["x"]));
    return batch;
}

}  // namespace invar
