#include "invar/optim/store_pieces.h"

namespace invar {

std::vector<StorePiece> copy_pieces(const ParameterStore& store, const Tensor& held) {
    const Sharding& sharding = store.sharding();
    const std::int64_t rank = sharding.spread() ? sharding.ranks->rank() : 0;
    std::vector<StorePiece> pieces;
    for (const Bucket& bucket : store.buckets()) {
        const std::int64_t held_at = sharding.shares_moments() ? bucket.share : bucket.begin + rank * bucket.piece;
        const Tensor copy = Tensor::empty({bucket.piece}, held.dtype());
        kernels_for(held.device()).download(copy.raw(), held.window(held_at, {bucket.piece}).raw(), copy.bytes());
        for (std::size_t i = bucket.first; i < bucket.last; ++i) {
            const ParameterStore::OwnPart own = store.own_part(i);
            if (own.count > 0) pieces.push_back({i, own.from, copy.window(own.at - held_at, {own.count})});
        }
    }
    return pieces;
}

}  // namespace invar
