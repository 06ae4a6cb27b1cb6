// ModuleWatch: while it lives, whoever made it is shown the result of every module that has weights of its own, as it
// runs forward on this thread.
#pragma once

#include <functional>
#include <string>

#include "invar/core/tensor.h"

namespace invar {

class ModuleWatch {
  public:
    using See = std::function<void(const std::string& path, const Tensor& result)>;
    explicit ModuleWatch(See see);
    ~ModuleWatch();
    ModuleWatch(const ModuleWatch&) = delete;
    ModuleWatch& operator=(const ModuleWatch&) = delete;
    // nullptr where nobody watches.
    static const See* current();

  private:
    See see_;
    const See* previous_;
};

}  // namespace invar
