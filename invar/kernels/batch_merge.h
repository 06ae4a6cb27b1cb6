// Batch norms over the rows of several ranks: what is made of what each of them tells, for one channel, compiled by
// every device (BatchNormMerge and BatchNormPull in specs.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "invar/core/view.h"

namespace invar {

// What the ranks tell of their rows, f64 [ranks, 1 + 2 channels].
struct RankRows {
    const double* parts;
    std::int64_t ranks, channels;

    explicit RankRows(const View& view)
        : parts(view.as<const double>()), ranks(view.size[0]), channels((view.size[1] - 1) / 2) {}
    INVAR_HD const double* of(std::int64_t rank) const { return parts + rank * (1 + 2 * channels); }
    INVAR_HD double all() const {
        double rows = 0;
        for (std::int64_t r = 0; r < ranks; ++r) rows += of(r)[0];
        return rows;
    }
};

// Mean and biased variance of all rows; the mean is taken first, so that a large one costs no digits.
struct MergedChannel {
    double rows, mean = 0, variance = 0;

    INVAR_HD MergedChannel(const RankRows& ranks, std::int64_t channel, double eps) : rows(ranks.all()) {
        for (std::int64_t r = 0; r < ranks.ranks; ++r)
            if (ranks.of(r)[0] > 0) mean += ranks.of(r)[0] / rows * ranks.of(r)[1 + channel];
        for (std::int64_t r = 0; r < ranks.ranks; ++r) {
            const double* const part = ranks.of(r);
            if (!(part[0] > 0)) continue;
            const double inverse = part[1 + ranks.channels + channel], there = 1 / (inverse * inverse) - eps;
            const double apart = part[1 + channel] - mean;
            variance += part[0] / rows * ((there < 0 ? 0 : there) + apart * apart);
        }
    }
    INVAR_HD double rstd(double eps) const { return rows > 0 ? 1 / sqrt(variance + eps) : 1; }
    INVAR_HD double unbiased() const { return variance * rows / (rows - 1); }
};

// What a gradient of x gets by way of the statistics; nothing where no rank has a row.
struct PulledChannel {
    double pull = 0, constant = 0;

    INVAR_HD PulledChannel(const RankRows& ranks, const double* sums, std::int64_t channel, double rstd, double gamma) {
        const double rows = ranks.all();
        if (rows == 0) return;
        double of_beta = 0, of_gamma = 0;
        for (std::int64_t r = 0; r < ranks.ranks; ++r) {
            of_beta += sums[r * 2 * ranks.channels + channel];
            of_gamma += sums[(r * 2 + 1) * ranks.channels + channel];
        }
        pull = -gamma * rstd * rstd * of_gamma / rows;
        constant = -gamma * rstd * of_beta / rows;
    }
};

}  // namespace invar
