#include "invar/data/mixup.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invar/core/error.h"
#include "invar/image/augment.h"

namespace invar {

namespace {

constexpr std::uint64_t kMixupStream = 0x6d69'7875'7000'0000;

double normal(RandomDraws& draws) {
    const double radius = std::sqrt(-2 * std::log(1 - draws.uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * draws.uniform());
}

// Marsaglia and Tsang, 2000; below 1 by the power of one more draw, as logarithms: small alphas give tiny numbers.
double log_gamma_draw(double alpha, RandomDraws& draws) {
    if (alpha < 1) return log_gamma_draw(alpha + 1, draws) + std::log(1 - draws.uniform()) / alpha;
    const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
        const double x = normal(draws), v = std::pow(1 + c * x, 3);
        if (v <= 0) continue;
        if (std::log(1 - draws.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
    }
}

double beta_draw(double alpha, RandomDraws& draws) {
    const double a = log_gamma_draw(alpha, draws), b = log_gamma_draw(alpha, draws);
    return 1 / (1 + std::exp(b - a));
}

template <class T>
void mix_rows(T* rows, std::int64_t count, std::int64_t width, float share) {
    const std::vector<T> first(rows, rows + width);
    for (std::int64_t i = 0; i < count; ++i) {
        T* row = rows + i * width;
        const T* next = i + 1 < count ? row + width : first.data();
        for (std::int64_t k = 0; k < width; ++k) {
            const float mixed = share * float(row[k]) + (1 - share) * float(next[k]);
            if constexpr (std::is_same_v<T, float>)
                row[k] = mixed;
            else
                row[k] = T(mixed + 0.5f);
        }
    }
}

}  // namespace

void mix_pairs(Batch& batch, const MixupOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t number) {
    const std::int64_t n = batch.size, classes = options.classes;
    const bool labelled = batch.has("y") && batch["y"].dtype() == Dtype::i64 && batch["y"].shape() == Shape{n};
    check<UsageError>(labelled && classes > 0,
                      "data.mixup mixes samples of classes, and these have no label y each; "
                      "set data.mixup=0");
    const Tensor& x = batch["x"];
    check<UsageError>(x.dtype() == Dtype::f32 || x.dtype() == Dtype::u8,
                      "data.mixup mixes numbers, and x is {}; set data.mixup=0", x.str());
    const Random4 r = philox(seed, std::uint64_t(number), kMixupStream ^ std::uint64_t(epoch));
    RandomDraws draws(RngState{std::uint64_t(r.v[0]) << 32 | r.v[1], 0});
    const float share = float(beta_draw(options.alpha, draws));

    const std::int64_t width = n > 0 ? x.numel() / n : 0;
    if (x.dtype() == Dtype::u8)
        mix_rows(x.data<std::uint8_t>(), n, width, share);
    else
        mix_rows(x.data<float>(), n, width, share);

    const PurposeScope purpose(Purpose::data);
    Tensor targets = Tensor::empty({n, classes}, Dtype::f32);
    float* out = targets.data<float>();
    std::fill(out, out + n * classes, 0.0f);
    const std::int64_t* y = batch["y"].data<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t other = y[(i + 1) % n];
        for (const std::int64_t label : {y[i], other})
            check(label >= 0 && label < classes, "data.mixup: label {} of a sample, expected 0 to {}", label,
                  classes - 1);
        out[i * classes + y[i]] += share;
        out[i * classes + other] += 1 - share;
    }
    batch.set("targets", targets);
}

}  // namespace invar
