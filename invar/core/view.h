// View: a tensor as a kernel sees it. Plain data, so that it can be handed to any device.
#pragma once

#include <cstdint>

#include "invar/core/dtype.h"

namespace invar {

struct View {
    static constexpr int kRank = 6;
    void* data = nullptr;  // nullptr: no tensor
    Dtype dtype = Dtype::f32;
    int rank = 0;
    std::int64_t size[kRank] = {};
    std::int64_t stride[kRank] = {};  // in elements

    INVAR_HD std::int64_t numel() const {
        std::int64_t count = 1;
        for (int i = 0; i < rank; ++i) count *= size[i];
        return count;
    }
    INVAR_HD bool contiguous() const {
        std::int64_t expected = 1;
        for (int i = rank - 1; i >= 0; --i) {
            if (size[i] != 1 && stride[i] != expected) return false;
            expected *= size[i];
        }
        return true;
    }
    template <class T>
    INVAR_HD T* as() const {
        return static_cast<T*>(data);
    }
    explicit operator bool() const { return data != nullptr; }
};

}  // namespace invar
