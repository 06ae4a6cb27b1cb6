#include "invar/diagnose/lost_updates.h"

#include "invar/core/error.h"

namespace invar {

UpdateWatch::UpdateWatch(Optimizer& optimizer, Dtype format) : optimizer_(optimizer), format_(format) {
    for (const Parameter* parameter : optimizer.store().parameters())
        before_.push_back(parameter->value.to_vector<float>());
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
                    const float update = after[i] - before_[p][i];
                    if (update == 0) continue;
                    const float kept = float(T(before_[p][i]));
                    ++totals[p].updates;
                    totals[p].lost += float(T(kept + update)) == kept;
                }
            }
        }
    });
}

}  // namespace invar
