#include "invar/data/dataset.h"

namespace invar {

std::string_view name_of(Split split) {
    return split == Split::train ? "train" : "test";
}

}  // namespace invar
