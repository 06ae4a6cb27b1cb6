#include "invar/diagnose/lost_updates.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

UpdateWatch::UpdateWatch(Optimizer& optimizer, Dtype format) : optimizer_(optimizer), format_(format) {
    for (const Parameter* parameter : optimizer.store().parameters())
        before_.push_back(parameter->value.to_vector<float>());
    const double factor = optimizer.groups()[0].lr > 0 ? optimizer.learning_rate() / optimizer.groups()[0].lr : 0.0;
    decay_.resize(before_.size());
    for (const ParameterGroup& group : optimizer.parameter_groups())
        for (std::size_t p = 0; p < before_.size(); ++p)
            if (std::ranges::find(group.parameters, optimizer.store().parameters()[p]) != group.parameters.end())
                decay_[p] = float(factor * group.spec.lr * group.spec.weight_decay);
}

void UpdateWatch::add_to(std::vector<LostUpdates>& totals) const {
    const std::vector<Parameter*>& parameters = optimizer_.store().parameters();
    totals.resize(parameters.size());
    dispatch(format_, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (requires { T(1.0f); }) {
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                totals[p].parameter = parameters[p]->name;
                const std::vector<float> after = parameters[p]->value.to_vector<float>();
                for (std::size_t i = 0; i < after.size(); ++i) {
                    const float update = after[i] - before_[p][i], kept = float(T(before_[p][i]));
                    if (decay_[p] > 0 && kept != 0) {
                        ++totals[p].decays;
                        totals[p].decays_lost += float(T(kept - decay_[p] * kept)) == kept;
                    }
                    if (update == 0) continue;
                    ++totals[p].updates;
                    totals[p].lost += float(T(kept + update)) == kept;
                }
            }
        }
    });
}

}  // namespace invar
