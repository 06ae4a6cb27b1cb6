#include "invar/data/chains.h"

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/data/registry.h"

namespace invar {

namespace {

constexpr std::uint64_t kStream = 0x636861696e73;

class Chains final : public Dataset {
  public:
    Chains(const ChainsOptions& options, Split split, std::uint64_t seed)
        : options_(options),
          size_(split == Split::train ? options.size : std::max<std::int64_t>(1, options.size / 8)),
          seed_(seed),
          stream_(kStream + std::uint64_t(split)) {}

    std::string name() const override { return "chains"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {{options_.length}, options_.vocabulary}; }

    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size()), length = options_.length;
        Batch batch({{"x", Tensor::empty({n, length}, Dtype::i64)}, {"y", Tensor::empty({n, length}, Dtype::i64)}}, n);
        std::int64_t *x = batch["x"].data<std::int64_t>(), *y = batch["y"].data<std::int64_t>();
        for (const std::int64_t index : indices) {
            check(index >= 0 && index < size_, "chains: sample {} does not exist; it has {}", index, size_);
            std::int64_t token = random(index, 0).v[1] % options_.vocabulary;
            for (std::int64_t i = 0; i < length; ++i) {
                x[i] = token;
                const Random4 drawn = random(index, i + 1);
                const bool by_rule = double(to_unit(drawn.v[0])) < options_.order;
                token = (by_rule ? token * 5 + 3 : std::int64_t(drawn.v[1])) % options_.vocabulary;
                y[i] = token;
            }
            x += length, y += length;
        }
        return batch;
    }

  private:
    Random4 random(std::int64_t index, std::int64_t place) const {
        return philox(seed_, std::uint64_t(index), stream_ + (std::uint64_t(place) << 8));
    }
    ChainsOptions options_;
    std::int64_t size_;
    std::uint64_t seed_, stream_;
};

using C = ChainsOptions;
const RegisterData<C> kChains{
    "chains",
    "Rows of tokens with a rule in them, made on the fly from the seed: for task=language.",
    [](const C& options, Split split, std::uint64_t seed) { return std::make_shared<Chains>(options, split, seed); },
    {key("size", &C::size, within(1, 1e9), "Rows to train on; an eighth of it to validate on."),
     key("length", &C::length, within(1, 1 << 24), "Tokens in a row."),
     key("vocabulary", &C::vocabulary, within(2, 1 << 24), "Different tokens."),
     key("order", &C::order, within(0, 1), "How often the rule holds.")},
    [](const C& options) {
        return DataInfo{{options.length}, options.vocabulary};
    }};

}  // namespace

}  // namespace invar
