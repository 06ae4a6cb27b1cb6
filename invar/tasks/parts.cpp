#include "invar/tasks/parts.h"

namespace invar {

TaskParts::TaskParts(OpenData open, MakeModel make, std::optional<DataInfo> known)
    : open_(std::move(open)), make_(std::move(make)), known_(std::move(known)) {}

TaskParts::TaskParts(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test, MakeModel make)
    : TaskParts([=](Split split) { return split == Split::train ? train : test; }, std::move(make)) {}

std::shared_ptr<const Dataset> TaskParts::data(Split split) const {
    std::shared_ptr<const Dataset>& data = opened_[split == Split::train ? 0 : 1];
    if (!data) data = open_(split);
    return data;
}

DataInfo TaskParts::info() const {
    return known_ ? *known_ : data(Split::train)->info();
}

}  // namespace invar
