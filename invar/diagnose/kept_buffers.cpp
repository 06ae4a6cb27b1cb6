#include "invar/diagnose/kept_buffers.h"

#include "invar/kernels/kernels.h"

namespace invar {

KeptBuffers::KeptBuffers(Module& model) {
    for (const auto& [name, buffer] : model.buffers()) {
        Tensor copy = Tensor::empty_like(*buffer);
        kernels_for(copy.device()).copy(buffer->view(), copy.view());
        kept_.push_back({name, buffer, copy});
    }
}

KeptBuffers::~KeptBuffers() {
    for (const Kept& kept : kept_) {
        // Where a module has put another tensor in its place, that one goes.
        if (kept.buffer->dtype() != kept.copy.dtype() || kept.buffer->shape() != kept.copy.shape()) {
            *kept.buffer = kept.copy;
            continue;
        }
        kernels_for(kept.copy.device()).copy(kept.copy.view(), kept.buffer->view());
        kept.buffer->bump_version();
    }
}

std::string KeptBuffers::first_changed() const {
    for (const Kept& kept : kept_)
        if (kept.buffer->to_vector<double>() != kept.copy.to_vector<double>()) return kept.name;
    return "";
}

}  // namespace invar
