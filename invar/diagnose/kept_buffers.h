// KeptBuffers: a model's buffers as they were, to compare with and to put back at the end of a scope.
#pragma once

#include "invar/nn/module.h"

namespace invar {

class KeptBuffers {
  public:
    explicit KeptBuffers(Module& model);
    ~KeptBuffers();
    KeptBuffers(const KeptBuffers&) = delete;
    KeptBuffers& operator=(const KeptBuffers&) = delete;
    // The name of the first that is another now; "" where none is.
    std::string first_changed() const;

  private:
    struct Kept {
        std::string name;
        Tensor* buffer;
        Tensor copy;
    };
    std::vector<Kept> kept_;
};

}  // namespace invar
