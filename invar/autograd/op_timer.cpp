#include "invar/autograd/op_timer.h"

#include "invar/autograd/watch_pause.h"

namespace invar {

OpTimer* OpTimer::current() {
    OpWatcher* const watcher = OpWatcher::current();
    return watcher == nullptr ? nullptr : dynamic_cast<OpTimer*>(watcher);
}

OpTimer* OpTimer::paused() {
    const ResumeWatch resumed;
    return current();
}

double bytes_of(const Tensor& tensor) {
    if (!tensor) return 0;
    auto bytes = double(size_of(tensor.dtype()));
    for (int i = 0; i < tensor.rank(); ++i)
        if (tensor.strides()[i] != 0) bytes *= double(tensor.size(i));
    return bytes;
}

}  // namespace invar
