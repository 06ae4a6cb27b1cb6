// Shadows that are still on their way, from other ranks, when forward begins: who reads one waits for it. A recording
// cannot leave them on their way at its end: it sends at its beginning what the step before it has left.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

class Arrivals {
  public:
    virtual ~Arrivals() = default;
    // The shadow is here. Sends it, by all ranks together, where a recording has left it.
    virtual void await(const Tensor& shadow) = 0;
    // What is on its way is here; what a recording has left stays where it is.
    virtual void await_sent() = 0;
    // A recording begins, into which goes what sends shadows.
    virtual void begin_recording() = 0;

    // --- all those that this thread knows of ---
    static void await_any(const Tensor& shadow) {
        for_each([&](Arrivals& each) { each.await(shadow); });
    }
    static void await_all_sent() {
        for_each([](Arrivals& each) { each.await_sent(); });
    }
    static void begin_recordings() {
        for_each([](Arrivals& each) { each.begin_recording(); });
    }

  protected:
    // This thread knows of them from here on, for as long as they live.
    void make_known() {
        std::erase_if(known(), [](const auto& other) { return other.expired(); });
        if (std::ranges::none_of(known(), [&](const auto& other) { return other.lock() == self_; }))
            known().push_back(self_);
    }

  private:
    template <class Act>
    static void for_each(const Act& act) {
        for (std::size_t i = 0; i < known().size(); ++i)
            if (const std::shared_ptr<Arrivals*> each = known()[i].lock()) act(**each);
    }
    static std::vector<std::weak_ptr<Arrivals*>>& known() {
        thread_local std::vector<std::weak_ptr<Arrivals*>> all;
        return all;
    }
    std::shared_ptr<Arrivals*> self_ = std::make_shared<Arrivals*>(this);  // ends when this does
};

}  // namespace invar
