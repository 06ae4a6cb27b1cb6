#include "invar/kernels/devices.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <utility>

#include "invar/core/device_loader.h"
#include "invar/core/error.h"
#include "invar/core/loaded_from.h"
#include "invar/kernels/cpu/select.h"
#include "invar/kernels/gpu_utilization.h"
#include "invar/kernels/stand_in.h"

namespace invar {

namespace {

constexpr const char* kCudaLibrary = "libinvar_cuda.so";
constexpr const char* kCudaStart = "invar_cuda_start";
constexpr const char* kCudaUtilization = "invar_cuda_utilization";

std::array<std::atomic<Kernels*>, 2>& registered() {
    static std::array<std::atomic<Kernels*>, 2> kernels{};
    return kernels;
}

// Percent, or -1; nullptr until the CUDA library runs.
std::atomic<int (*)()>& utilization() {
    static std::atomic<int (*)()> function = nullptr;
    return function;
}

std::string why_not_there(const std::filesystem::path& path) {
    constexpr std::string_view kWhyNotBuilt = INVAR_WHY_NO_CUDA;
    if (kWhyNotBuilt.empty()) return fmt::format("{} is not there, although it was built", path.string());
    return fmt::format("the CUDA device was not built: {}", kWhyNotBuilt);
}

// Loads and starts the CUDA library; says what is missing, or nothing where it runs. It stays loaded.
std::string start_cuda() {
    const std::filesystem::path path = loaded_from(reinterpret_cast<void*>(&resolve_device)) / kCudaLibrary;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return why_not_there(path);
    // Asked first: CUDA's libraries are large, and a machine without a driver should not wait for them.
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) return fmt::format("{} is there, but no NVIDIA driver", kCudaLibrary);
    dlclose(driver);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const reason = dlerror();
        return fmt::format("its libraries cannot be loaded ({}); LD_LIBRARY_PATH can say where they are",
                           reason != nullptr ? reason : path.string());
    }
    const auto start = reinterpret_cast<const char* (*)()>(dlsym(library, kCudaStart));
    if (start == nullptr) return fmt::format("{} is of another version of Invar", path.string());
    utilization() = reinterpret_cast<int (*)()>(dlsym(library, kCudaUtilization));
    const char* const reason = start();
    return reason != nullptr ? reason : "";
}

// A tensor may be the first that asks for a device.
[[maybe_unused]] const bool kLoaderIsSet = (set_device_loader([](Device device) { kernels_for(device); }), true);

Kernels*& stand_in(Device::Kind kind) {
    thread_local std::array<Kernels*, 2> all{};
    return all[static_cast<std::size_t>(kind)];
}

bool& tf32_flag() {
    thread_local bool on = false;
    return on;
}

}  // namespace

const std::string& why_no_cuda() {
    static const std::string reason = start_cuda();
    return reason;
}

std::optional<int> gpu_utilization(Device device) {
    int (*const ask)() = utilization();
    const int percent = device.is_cpu() || ask == nullptr ? -1 : ask();
    return percent < 0 ? std::nullopt : std::optional(percent);
}

Device resolve_device(std::string_view text) {
    if (text == "auto") return why_no_cuda().empty() ? Device::cuda() : Device::cpu();
    const Device device = Device::parse(text);
    if (device.is_cpu() || stand_in(device.kind) != nullptr) return device;
    check<UsageError>(why_no_cuda().empty(), "device '{}' is not available: {}; use --device cpu", text, why_no_cuda());
    check<UsageError>(device.index == 0,
                      "device '{}': a process uses one GPU; choose it with CUDA_VISIBLE_DEVICES={} and --device cuda",
                      text, device.index);
    return device;
}

std::string why_on_cpu(std::string_view text) {
    return text == "auto" ? why_no_cuda() : "";
}

void register_device(Device::Kind kind, Kernels& kernels) {
    registered()[static_cast<std::size_t>(kind)] = &kernels;
}

KernelsStandIn::KernelsStandIn(Device::Kind kind, Kernels& kernels)
    : kind_(kind), previous_(std::exchange(stand_in(kind), &kernels)) {}
KernelsStandIn::~KernelsStandIn() {
    stand_in(kind_) = previous_;
}

Kernels& kernels_for(Device device) {
    if (Kernels* const instead = stand_in(device.kind)) return *instead;
    if (device.is_cpu()) {
        static Kernels& cpu = best_cpu_kernels();
        return cpu;
    }
    std::atomic<Kernels*>& slot = registered()[static_cast<std::size_t>(device.kind)];
    if (slot.load(std::memory_order_acquire) == nullptr)
        check<UsageError>(why_no_cuda().empty(), "device '{}' is not available: {}; use --device cpu", device.str(),
                          why_no_cuda());
    return *slot.load(std::memory_order_acquire);
}

Tf32Scope::Tf32Scope(bool on) : previous_(tf32_flag()) {
    tf32_flag() = on;
}
Tf32Scope::~Tf32Scope() {
    tf32_flag() = previous_;
}
bool Tf32Scope::on() {
    return tf32_flag();
}

}  // namespace invar
