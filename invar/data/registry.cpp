#include "invar/data/registry.h"

#include "invar/core/error.h"

namespace invar {

std::shared_ptr<const Dataset> open_data(const Part& data, Split split, std::uint64_t seed) {
    auto opened = made_by(
        data, [&] { return std::any_cast<const DataMaker&>(data.info().make).open(data.options(), split, seed); });
    check<UsageError>(opened != nullptr, "data '{}' gave no {} set", data.name(), name_of(split));
    check<UsageError>(opened->size() > 0, "data '{}': its {} set has no samples", data.name(), name_of(split));
    return opened;
}

std::optional<DataInfo> describe_data(const Part& data) {
    const auto& maker = std::any_cast<const DataMaker&>(data.info().make);
    if (!maker.describe) return std::nullopt;
    return maker.describe(data.options());
}

}  // namespace invar
