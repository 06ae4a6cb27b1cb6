// How long work takes on the GPU, as the host sees it: many calls, and one wait for the device behind them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "invar/kernels/devices.h"

namespace invar {

inline Kernels& gpu() {
    return kernels_for(Device::cuda());
}

using Run = std::function<void()>;

// Of one call, in the mean of `times`.
inline double seconds(const Run& work, int times) {
    gpu().synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) work();
    gpu().synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

// The median of a few such rounds.
inline double median_seconds(const Run& work, int times) {
    constexpr int kRounds = 5;
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) rounds.push_back(seconds(work, times));
    std::sort(rounds.begin(), rounds.end());
    return rounds[kRounds / 2];
}

}  // namespace invar
