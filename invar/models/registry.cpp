#include "invar/models/registry.h"

#include "invar/core/error.h"

namespace invar {

std::unique_ptr<Module> make_model(const Part& model, const DataInfo& data) {
    auto made =
        made_by(model, [&] { return std::any_cast<const ModelMaker&>(model.info().make)(model.options(), data); });
    check<UsageError>(made != nullptr, "model '{}' made no module", model.name());
    made->set_maker([model, data] { return make_model(model, data); });
    return made;
}

}  // namespace invar
