#include "invar/models/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/ops/ops.h"

namespace invar {

std::int64_t draw_token(std::vector<double> logits, const SampleOptions& options, double uniform) {
    for (const double logit : logits)
        check(!std::isnan(logit), "the model's logits are NaN: nothing can be drawn from them");
    std::vector<std::int64_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return logits[std::size_t(a)] > logits[std::size_t(b)]; });
    if (options.temperature == 0) return order[0];
    std::size_t candidates = order.size();
    if (options.top_k > 0) candidates = std::min(candidates, std::size_t(options.top_k));
    std::vector<double> weights;
    const double top = logits[std::size_t(order[0])];
    for (std::size_t i = 0; i < candidates; ++i)
        weights.push_back(std::exp((logits[std::size_t(order[i])] - top) / options.temperature));
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    double kept = 0;
    std::size_t count = 0;
    while (count < weights.size() && (count == 0 || kept < options.top_p * all)) kept += weights[count++];
    double left = uniform * kept;
    for (std::size_t i = 0; i + 1 < count; ++i)
        if ((left -= weights[i]) < 0) return order[i];
    return order[count - 1];
}

std::vector<std::int64_t> sample(LanguageModel& model, std::span<const std::int64_t> prompt, Device device,
                                 const SampleOptions& o, const std::function<void(std::int64_t)>& told) {
    check<UsageError>(!prompt.empty(), "a sample needs a prompt of at least one token");
    check<UsageError>(o.temperature >= 0 && o.top_p > 0 && o.top_p <= 1 && o.top_k >= 0,
                      "temperature must be 0 or more, top_p in (0, 1], top_k 0 or more, not {}, {} and {}",
                      o.temperature, o.top_p, o.top_k);
    const NoGrad no_grad;
    model.eval();
    const bool cache = o.cache && model.can_cache();
    model.set_caching(cache);
    std::vector<std::int64_t> seen(prompt.begin(), prompt.end()), drawn;
    const auto forget_half = [&] {
        const std::int64_t keep = std::max<std::int64_t>(model.context() / 2, 1);
        if (std::int64_t(seen.size()) > keep) seen.erase(seen.begin(), seen.end() - keep);
        if (cache) model.set_caching(true);
    };
    if (std::int64_t(seen.size()) > model.context()) forget_half();
    std::vector<std::int64_t> given = seen;  // what the model has not seen yet, with a cache
    while (std::int64_t(drawn.size()) < o.tokens) {
        const std::vector<std::int64_t>& read = cache ? given : seen;
        const std::int64_t length = std::int64_t(read.size());
        const Tensor logits = model(ops::to(Tensor::from(read, {1, length}), device));
        const double uniform = double(to_unit(philox(o.seed, drawn.size()).v[0]));
        const std::int64_t token = draw_token(logits[{0, -1}].to_vector<double>(), o, uniform);
        drawn.push_back(token);
        if (told) told(token);
        if (token == o.stop) break;
        seen.push_back(token);
        given = {token};
        if (std::int64_t(seen.size()) > model.context()) {
            forget_half();
            given = seen;
        }
    }
    model.set_caching(false);
    return drawn;
}

}  // namespace invar
