// Text from a language model, a token at a time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "invar/models/language_model.h"

namespace invar {

struct SampleOptions {
    std::int64_t tokens = 200;
    double temperature = 1.0;  // 0 takes the likeliest each time
    std::int64_t top_k = 0;    // only among so many likeliest; 0: all
    double top_p = 1.0;        // only among the likeliest that have this share together
    std::uint64_t seed = 0;
    bool cache = true;       // where the model can
    std::int64_t stop = -1;  // ends behind this token; -1: none does
};

// The tokens that follow the prompt; each is told as it is drawn. Where the model has no place left, it goes on from
// the second half of what it sees. The model is in evaluation mode afterwards.
std::vector<std::int64_t> sample(LanguageModel& model, std::span<const std::int64_t> prompt, Device device,
                                 const SampleOptions& options, const std::function<void(std::int64_t)>& told = {});

// The draw alone: the index of one logit, by a number of [0, 1).
std::int64_t draw_token(std::vector<double> logits, const SampleOptions& options, double uniform);

}  // namespace invar
