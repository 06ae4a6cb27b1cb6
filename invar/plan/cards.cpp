#include "invar/plan/cards.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/kernels/devices.h"
#include "invar/train/bench.h"

namespace invar {

namespace {

constexpr std::int64_t kMiB = std::int64_t(1) << 20;
constexpr double kTera = 1e12, kGiga = 1e9;

// The H200 as docs/BENCHMARKS.md has it: a step's TFLOP/s over its share of one large product, ConvNet with batch 4096
// (19.0 / 37%, 50.2 / 13%, 180 / 26%, 178 / 24%), and gpu_kernels' copy.
constexpr double kFp32 = 51.4 * kTera, kTf32 = 386 * kTera, kFp16 = 692 * kTera, kBf16 = 742 * kTera;
constexpr double kCopy = 4.23e12;
// NVIDIA's figures for the same card (H200 data sheet: dense products, HBM3e), and the shares of them that we reach.
constexpr double kFp32Share = kFp32 / (67 * kTera), kTf32Share = kTf32 / (494.5 * kTera);
constexpr double kFp16Share = kFp16 / (989 * kTera), kBf16Share = kBf16 / (989 * kTera), kCopyShare = kCopy / 4.8e12;
// Of a link's published speed, what collective operations reach. An assumption: NCCL's own tests are usually reported
// at 75 to 90% of it.
constexpr double kLinkShare = 0.8;
// Driver and libraries before anything is trained: an assumption.
constexpr std::int64_t kReserved = 768 * kMiB;

struct Published {
    const char *name, *title;
    std::int64_t mebibytes;      // as nvidia-smi counts them
    double fp32, tf32, sixteen;  // TFLOP/s, dense, products of 16 bits summed in FP32
    double memory;               // bytes a second
    int node;
    double link,
        network;         // bytes a second in one direction; a network of so many Gb/s a card, as makers' nodes have it
    double reached = 0;  // of the products' speed; 0: what we reach on an H200
};

Card from(const Published& p) {
    Card card;
    card.name = p.name, card.title = p.title;
    card.memory = p.mebibytes * kMiB;
    card.reserved = kReserved;
    const auto reached = [&](double ours) { return kTera * (p.reached > 0 ? p.reached : ours); };
    card.fp32 = p.fp32 * reached(kFp32Share), card.tf32 = p.tf32 * reached(kTf32Share);
    card.fp16 = p.sixteen * reached(kFp16Share), card.bf16 = p.sixteen * reached(kBf16Share);
    card.copy = p.memory * kCopyShare;
    card.gap = 3.5e-6, card.launch = 6e-6;  // a step of 15 small kernels (MLP, batch 32) takes 55 us
    card.node = p.node, card.link = p.link * kLinkShare, card.network = p.network * kLinkShare;
    return card;
}

const std::vector<Card>& table() {
    // NVIDIA's data sheets; NVLink 4 is 900 GB/s and NVLink 3 600 GB/s for both directions together, PCIe 4.0 x16 64
    // GB/s. DGX H100 and H200: 400 Gb/s a card; DGX A100: 200. A GeForce clocks above what its data sheet multiplies
    // at: LLM.Q's 40k tokens/s of Qwen2.5-0.5B on an RTX 4090 would be out of reach at the shares of an H200.
    static const std::vector<Card> all = [] {
        std::vector<Card> made;
        for (const Published& p : std::initializer_list<Published>{
                 {"h200", "NVIDIA H200", 143771, 67, 494.5, 989, 4.8e12, 8, 450 * kGiga, 50 * kGiga},
                 {"h100", "NVIDIA H100 80GB HBM3", 81559, 67, 494.5, 989, 3.35e12, 8, 450 * kGiga, 50 * kGiga},
                 {"a100", "NVIDIA A100-SXM4-80GB", 81920, 19.5, 156, 312, 2.039e12, 8, 300 * kGiga, 25 * kGiga},
                 {"a100-40", "NVIDIA A100-SXM4-40GB", 40960, 19.5, 156, 312, 1.555e12, 8, 300 * kGiga, 25 * kGiga},
                 {"l40s", "NVIDIA L40S", 46068, 91.6, 183, 362, 0.864e12, 8, 32 * kGiga, 25 * kGiga},
                 {"rtx4090", "NVIDIA GeForce RTX 4090", 24564, 82.6, 82.6, 165.2, 1.008e12, 8, 32 * kGiga, 12.5 * kGiga,
                  1.0}})
            made.push_back(from(p));
        return made;
    }();
    return all;
}

Card this_cpu() {
    Card card;
    card.name = "cpu", card.title = cpu_description();
    card.memory = std::int64_t(sysconf(_SC_PHYS_PAGES)) * std::int64_t(sysconf(_SC_PAGE_SIZE));
    card.gap = card.launch = 4e-6;
    card.node = 1;
    card.network = 1.25 * kGiga;  // 10 Gb/s, where nobody says otherwise
    card.link = card.network;
    return card;
}

Card this_gpu() {
    const std::string described = kernels_for(Device::cuda()).description();
    if (const Card* const card = card_described(described)) return *card;
    std::vector<std::string> names;
    for (const Card& card : table()) names.push_back(card.name);
    fail<UsageError>(
        "nothing is known of the memory and links of this card ({}); plan for another with --card, one of {}",
        described, fmt::join(names, ", "));
}

}  // namespace

double Card::product_rate(Dtype dtype, bool as_tf32) const {
    if (dtype == Dtype::f16) return fp16;
    if (dtype == Dtype::bf16) return bf16;
    return as_tf32 ? tf32 : dtype == Dtype::f64 ? fp32 / 2 : fp32;
}

std::span<const Card> cards() {
    return table();
}

const Card* card_described(std::string_view description) {
    for (const Card& card : table())
        if (description.starts_with(card.title + ",")) return &card;
    return nullptr;
}

double measure_copy(Device device) {
    using Clock = std::chrono::steady_clock;
    const std::int64_t elements = (device.is_cpu() ? 64 : 1024) * kMiB / 4;
    const Tensor from = Tensor::empty({elements}, Dtype::f32, device), to = Tensor::empty_like(from);
    Kernels& kernels = kernels_for(device);
    kernels.fill(from.view(), 1);
    double best = 0;
    for (int i = 0; i < 4; ++i) {
        kernels.synchronize();
        const auto start = Clock::now();
        kernels.copy(from.view(), to.view());
        kernels.synchronize();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        best = std::max(best, 2.0 * double(from.bytes()) / seconds);
    }
    return best;
}

Card card_named(std::string_view name) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; };
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"a100-80", "a100"},
                                                                         {"a100-80gb", "a100"},
                                                                         {"a100-40gb", "a100-40"},
                                                                         {"h100-80gb", "h100"},
                                                                         {"h100-80", "h100"}};
    for (const auto& [other, ours] : kOthers)
        if (std::ranges::equal(other, name, {}, {}, lower)) return card_named(ours);
    std::vector<std::string> names;
    for (const Card& card : table()) {
        if (std::ranges::equal(card.name, name, {}, {}, lower)) return card;
        names.push_back(card.name);
    }
    fail<UsageError>("--card {}: there is no such card{}; there are {}", name, did_you_mean(std::string(name), names),
                     fmt::join(names, ", "));
}

void measure_rates(Card& card, Device device, std::span<const Precision> precisions) {
    kernels_for(device).configure({.benchmark = true, .deterministic = false});
    for (const Precision& precision : precisions) {
        double rate = 0;  // the best of some: others may be on the machine
        for (int i = 0; i < 3; ++i) rate = std::max(rate, measure_product(device, precision));
        if (precision.kind == Precision::Kind::tf32)
            card.tf32 = rate;
        else if (precision.compute_dtype() == Dtype::f16)
            card.fp16 = rate;
        else if (precision.compute_dtype() == Dtype::bf16)
            card.bf16 = rate;
        else
            card.fp32 = rate;
    }
    if (card.fp32 == 0) card.fp32 = measure_product(device, Precision{});
    card.copy = measure_copy(device);
    card.measured = true;
    release_cached_memory(device);
}

Card measured_card(Device device, std::span<const Precision> precisions) {
    Card card = device.is_cpu() ? this_cpu() : this_gpu();
    measure_rates(card, device, precisions);
    return card;
}

}  // namespace invar
