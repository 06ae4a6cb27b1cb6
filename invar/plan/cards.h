// Cards by name: their memory, how fast they multiply and copy, and the links between them. Each figure says where it
// is from: measured by us, or its maker's times the share that we reach on the card that we measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "invar/amp/precision.h"

namespace invar {

struct Card {
    std::string name;           // "h200"
    std::string title;          // as it calls itself: "NVIDIA H200"
    std::int64_t memory = 0;    // bytes, as its driver counts them
    std::int64_t reserved = 0;  // of these, what driver and libraries take before anything is trained
    // FLOP/s of one large product, by the format that is multiplied.
    double fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0;
    double copy = 0;        // bytes a second, read and written
    double gap = 0;         // seconds from one small kernel to the next inside a recorded step ...
    double launch = 0;      // ... and where the host launches each
    int node = 8;           // cards that have the fast link among them
    double link = 0;        // bytes a second from a card to the others of its node, in one direction
    double network = 0;     // likewise from a card to another node
    double latency = 5e-6;  // seconds from one card to the next, each time that a message is passed on
    bool measured = false;  // on this machine, in this process
    bool is_cpu() const { return name == "cpu"; }
    std::int64_t usable() const { return memory - reserved; }
    double product_rate(Dtype dtype, bool as_tf32) const;
};

// Those that there is a row for.
std::span<const Card> cards();
// By its name; throws a UsageError that lists them.
Card card_named(std::string_view name);
// By how its kernels describe it, "NVIDIA H200, 132 multiprocessors, ..."; nullptr where there is no row for it.
const Card* card_described(std::string_view description);
// Bytes a second of a large copy, read and written.
double measure_copy(Device device);
// This machine's GPU, or its CPU, timed for a moment in each of the formats of these precisions.
Card measured_card(Device device, std::span<const Precision> precisions);
// The rates alone, FP32's always among them: of any device, also a card that there is no row for.
void measure_rates(Card& card, Device device, std::span<const Precision> precisions);

}  // namespace invar
