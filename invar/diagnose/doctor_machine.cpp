// What the machine itself is and gives: memory that keeps what is written to it, and speed beside what cores, clock and
// instruction set, or the maker of a card, promise.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/diagnose/doctor_parts.h"
#include "invar/diagnose/memory_there.h"
#include "invar/kernels/cpu/onednn.h"
#include "invar/plan/cards.h"
#include "invar/train/bench.h"

namespace invar {

namespace {

// No two words alike, and none like those beside it: what lands at another address is seen.
std::uint64_t word_at(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t word = (index + seed) * 0x9E3779B97F4A7C15u;
    word ^= word >> 29;
    return word * 0xBF58476D1CE4E5B9u;
}

constexpr std::size_t kPieceWords = std::size_t(1) << 19;  // 4 MiB

// Calls f(offset in words, a piece of host memory with as many words as are left of the block).
template <class F>
void for_pieces(std::size_t words, F&& f) {
    std::vector<std::uint64_t> piece(std::min(words, kPieceWords));
    for (std::size_t at = 0; at < words; at += kPieceWords) {
        piece.resize(std::min(kPieceWords, words - at));
        f(at, piece);
    }
}

// A pattern, or its inverse, written all over the block and then read back.
void write_and_read(const Examined& on, const Storage& block, std::uint64_t inverted, MemoryHealth& health) {
    auto* const base = static_cast<std::uint64_t*>(block.data());
    const std::size_t words = block.bytes() / sizeof(std::uint64_t);
    for_pieces(words, [&](std::size_t at, std::vector<std::uint64_t>& piece) {
        for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = word_at(on.seed, at + i) ^ inverted;
        on.kernels.upload(base + at, piece.data(), piece.size() * sizeof(std::uint64_t));
    });
    on.kernels.synchronize();
    for_pieces(words, [&](std::size_t at, std::vector<std::uint64_t>& piece) {
        on.kernels.download(piece.data(), base + at, piece.size() * sizeof(std::uint64_t));
        for (std::size_t i = 0; i < piece.size(); ++i) {
            if (piece[i] == (word_at(on.seed, at + i) ^ inverted)) continue;
            if (health.wrong++ == 0) health.first_wrong = std::int64_t((at + i) * sizeof(std::uint64_t));
        }
    });
}

struct CpuInfo {
    std::string name;
    double clock = 0;  // Hz
    int cores = 0;
};

// By /proc/cpuinfo, whose clock is the present one; the system's figure for the highest where it has one.
CpuInfo cpu_info() {
    CpuInfo info;
    std::ifstream file("/proc/cpuinfo");
    std::set<std::string> cores;
    std::string package;
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == line.npos) continue;
        const std::string key = line.substr(0, line.find_last_not_of(" \t:", colon) + 1);
        const std::string value = line.size() > colon + 2 ? line.substr(colon + 2) : "";
        if (key == "model name" && info.name.empty()) info.name = value;
        if (key == "physical id") package = value;
        if (key == "core id") cores.insert(package + "/" + value);
        double megahertz = 0;
        if (key == "cpu MHz" && std::istringstream(value) >> megahertz)
            info.clock = std::max(info.clock, 1e6 * megahertz);
    }
    info.cores = int(cores.size());
    double kilohertz = 0;
    if (std::ifstream most("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); most >> kilohertz)
        info.clock = 1e3 * kilohertz;
    return info;
}

Precision precision_of(const std::string& format) {
    return Precision::parse(format == "f32"    ? "32-true"
                            : format == "tf32" ? "tf32"
                            : format == "f16"  ? "16-mixed"
                                               : "bf16-mixed");
}

void describe(DeviceHealth& health) {
    if (!health.device.is_cpu()) {
        const std::string described = kernels_for(health.device).description();
        health.name = described.substr(0, described.find(','));
        health.description = described.size() > health.name.size() ? described.substr(health.name.size() + 2) : "";
        for (FormatHealth& format : health.formats) format.native = format.multiplies;
        return;
    }
    const CpuInfo cpu = cpu_info();
    health.name = cpu.name;
    health.description = cpu_description();
    health.threads = threads();
    health.cores = cpu.cores > 0 ? std::min(cpu.cores, health.threads) : health.threads;
    health.clock = cpu.clock;
    for (FormatHealth& format : health.formats) {
        if (!format.multiplies) continue;
        const Dtype dtype = precision_of(format.format).compute_dtype();
        format.native = dtype == Dtype::f32 || onednn::native(dtype);
        format.flops_per_cycle = onednn::flops_per_cycle(dtype);
        format.should_give = format.flops_per_cycle * health.clock * health.cores;
    }
}

}  // namespace

MemoryHealth check_memory(const Examined& on, std::int64_t most) {
    const MemoryThere there = memory_there(on.device);
    MemoryHealth health;
    health.total = there.total, health.free = there.free;
    constexpr std::int64_t kShare = 8;  // of what is free, an eighth
    const std::int64_t bytes = (there.free > 0 ? std::min(most, there.free / kShare) : most) / 8 * 8;
    try {
        const Storage block(std::size_t(bytes), on.device, Purpose::workspace);
        health.tried = bytes;
        for (const std::uint64_t inverted : {std::uint64_t(0), ~std::uint64_t(0)})
            write_and_read(on, block, inverted, health);
    } catch (const Error& error) {
        health.problem = error.what();
    }
    release_cached_memory(on.device);
    return health;
}

void measure_speed(DeviceHealth& health, bool timed) {
    describe(health);
    const Card* const card =
        health.device.is_cpu() ? nullptr : card_described(kernels_for(health.device).description());
    const CpuUse before = cpu_use();
    for (FormatHealth& format : health.formats) {
        if (!format.multiplies) continue;
        const Precision precision = precision_of(format.format);
        if (card != nullptr)
            format.should_give = card->product_rate(precision.compute_dtype(), precision.kind == Precision::Kind::tf32);
        // The best of some: others may be on the machine.
        for (int i = 0; timed && format.deadly.empty() && i < 3; ++i)
            format.flops_per_s = std::max(format.flops_per_s, measure_product(health.device, precision));
    }
    if (!timed) return;
    health.copy_per_s = measure_copy(health.device);
    if (card != nullptr) health.copy_should_give = card->copy;
    if (health.device.is_cpu()) health.disturbed = disturbance_of((cpu_use() - before).waited_share(), "this program");
    release_cached_memory(health.device);
}

}  // namespace invar
