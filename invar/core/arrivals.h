// Shadows that are still on their way, from other ranks, when forward begins: who reads one waits for it.
#pragma once

#include <algorithm>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

class Arrivals {
  public:
    virtual ~Arrivals() = default;
    virtual void await(const Tensor& shadow) = 0;

    // For those that are on their way to this thread.
    static void await_any(const Tensor& shadow) {
        for (std::size_t i = expected().size(); i-- > 0;) expected()[i]->await(shadow);
    }

  protected:
    void expect() {
        if (std::ranges::find(expected(), this) == expected().end()) expected().push_back(this);
    }
    void forget() { std::erase(expected(), this); }

  private:
    static std::vector<Arrivals*>& expected() {
        thread_local std::vector<Arrivals*> all;
        return all;
    }
};

}  // namespace invar
