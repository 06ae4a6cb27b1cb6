// Counter-based random numbers (Philox 4x32, 10 rounds): the n-th number of a seed is a function of (seed, n) alone,
// so that any thread, device or replay can make it without having made the ones before.
#pragma once

#include <cstdint>

#include "invar/core/formats.h"

namespace invar {

struct Random4 {
    std::uint32_t v[4];
};

INVAR_HD inline Random4 philox(std::uint64_t seed, std::uint64_t counter, std::uint64_t stream = 0) {
    std::uint32_t c0 = std::uint32_t(counter), c1 = std::uint32_t(counter >> 32);
    std::uint32_t c2 = std::uint32_t(stream), c3 = std::uint32_t(stream >> 32);
    std::uint32_t k0 = std::uint32_t(seed), k1 = std::uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c0;
        const std::uint64_t p1 = std::uint64_t(0xCD9E8D57u) * c2;
        const std::uint32_t n0 = std::uint32_t(p1 >> 32) ^ c1 ^ k0;
        const std::uint32_t n2 = std::uint32_t(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = std::uint32_t(p1), c2 = n2, c3 = std::uint32_t(p0);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1), 24 bits, every value exact in f32.
INVAR_HD inline float to_unit(std::uint32_t bits) {
    return float(bits >> 8) * 0x1p-24f;
}

// Dropout decides on an element by sixteen bits, so that one counter serves eight of them; its probability is rounded
// to multiples of 2^-16, and what stays is scaled by what then really stays.
struct DropRule {
    static constexpr int kElements = 8;  // of a counter
    std::uint32_t limit;                 // an element goes where its bits are below this
    float keep;                          // what the others are multiplied by
    explicit DropRule(double p)
        : limit(std::uint32_t(p * 65536.0 + 0.5)), keep(limit < 65536 ? 65536.0f / float(65536 - limit) : 0.0f) {}
    static INVAR_HD std::uint32_t bits(const Random4& random, int i) {
        return random.v[i / 2] >> (i % 2 * 16) & 0xffff;
    }
};

// A place in a seed's sequence. Ops take numbers by reserving counters; what was reserved is reproducible from
// the state at that moment.
struct RngState {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    bool operator==(const RngState&) const = default;
};

class Generator {
  public:
    explicit Generator(std::uint64_t seed = 0) : state_{seed, 0} {}
    // Takes `counters` Philox counters (four numbers each) and returns the state that makes them.
    RngState reserve(std::uint64_t counters) {
        const RngState taken = state_;
        state_.offset += counters;
        return taken;
    }
    RngState state() const { return state_; }
    void set_state(RngState state) { state_ = state; }

  private:
    RngState state_;
};

// While one lives, this thread works on some samples of a batch that others work on too: those from `first` on, `count`
// of them, of a batch of `of`.
class SampleWindow {
  public:
    SampleWindow(std::int64_t first, std::int64_t count, std::int64_t of);
    ~SampleWindow();
    SampleWindow(const SampleWindow&) = delete;
    SampleWindow& operator=(const SampleWindow&) = delete;

  private:
    std::int64_t previous_[3];
};

// Numbers that were reserved, several to a counter: they begin in a counter behind the first `skip` of its own.
struct ReservedNumbers {
    RngState from;
    int skip = 0;
};

// Reserves `elements` numbers, `each` to a counter. Where they belong to the samples of a SampleWindow, those of all
// samples are reserved, and these ones get theirs: what is drawn for a sample does not depend on who works on it.
ReservedNumbers reserve_for_samples(Generator& generator, std::int64_t elements, int each);

// The generator that dropout and initialisers use on this thread.
Generator& default_generator();

}  // namespace invar
