// Tensors that have addresses and no memory. A promised one is held by somebody else: it can be told apart and can have
// gradients and shadows, and whoever reads it is told why it is not there. A deferred one is filled by its first
// reader.
#pragma once

#include <functional>
#include <string>

#include "invar/core/tensor.h"

namespace invar {

Tensor promised_tensor(const Shape& shape, Dtype dtype, Device device, std::string why);

// A host tensor. `fill` writes all of the tensor that it is given, which has that shape and dtype; it may be called
// more than once. The memory is in no MemoryStats.
using Fill = std::function<void(const Tensor&)>;
Tensor deferred_tensor(const Shape& shape, Dtype dtype, Fill fill);
// The tensor itself; of a deferred one that nobody has read an ordinary tensor with its values, while it stays as it
// is.
Tensor settled(const Tensor& tensor);
bool is_deferred(const Tensor& tensor);  // and not read yet

// While one lives, what this thread draws at random on the host is deferred (ops/creation.h), so that of a model which
// is made to be moved elsewhere one parameter at a time is there. The numbers are those that were reserved.
class DeferDraws {
  public:
    DeferDraws();
    ~DeferDraws();
    DeferDraws(const DeferDraws&) = delete;
    DeferDraws& operator=(const DeferDraws&) = delete;
    static bool active();

  private:
    bool previous_;
};

// For tensors, before they hand out an address: throws where it is promised, fills it where it is deferred.
void check_present(const Storage& storage);

}  // namespace invar
