#include "invar/data/token_windows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invar/core/error.h"

namespace invar {

void TokenWindows::Source::take_share(Split split, std::int64_t count, double test_share) {
    const std::int64_t cut = count - std::int64_t(std::ceil(test_share * double(count)));
    begin = split == Split::train ? 0 : cut;
    end = split == Split::train ? cut : count;
}

TokenWindows::TokenWindows(Source source, Read read) : source_(std::move(source)), read_(std::move(read)) {
    check<UsageError>(source_.end - source_.begin > source_.length,
                      "{}: {} tokens are too few for a sample of data.length = {} and the one behind it", source_.name,
                      source_.end - source_.begin, source_.length);
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
    return batch;
}

}  // namespace invar
