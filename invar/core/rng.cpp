#include "invar/core/rng.h"

namespace invar {

Generator& default_generator() {
    thread_local Generator generator;
    return generator;
}

}  // namespace invar
