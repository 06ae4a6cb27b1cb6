#include "invar/kernels/cuda/device.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <chrono>
#include <mutex>

#include "invar/core/error.h"
#include "invar/kernels/cuda/kernels.h"
#include "invar/kernels/cuda/recording.h"
#include "invar/kernels/devices.h"

namespace invar::cuda {

namespace {

KernelOptions& current_options() {
    static KernelOptions options;
    return options;
}

class CudaMemory final : public RawMemory {
  public:
    void* allocate(std::size_t bytes) override {
        void* data = nullptr;
        const cudaError_t status = cudaMalloc(&data, bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // running out is not an error of whatever is launched next
            return nullptr;
        }
        check_call(status, "cudaMalloc");
        return data;
    }
    void free(void* data, std::size_t) override { cudaFree(data); }  // waits for what still uses it
    void zero(void* data, std::size_t bytes) override { INVAR_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream())); }
    void copy_to_host(void* host, const void* data, std::size_t bytes) override {
        refuse_recording("reading a value back");
        INVAR_CUDA_CHECK(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream()));
        synchronize();
    }
    void synchronize() override {
        refuse_recording("waiting for the device");
        INVAR_CUDA_CHECK(cudaStreamSynchronize(stream()));
    }
};

// NVML comes with the driver, not with the toolkit, so it is looked up when asked for.
class Nvml {
  public:
    Nvml() {
        void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return;
        const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
        const auto find =
            reinterpret_cast<int (*)(const char*, void**)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
        memory_info_ = reinterpret_cast<int (*)(void*, MemoryInfo*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
        utilization_ = reinterpret_cast<int (*)(void*, Utilization*)>(dlsym(library, "nvmlDeviceGetUtilizationRates"));
        const auto version = reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
        char bus[32] = {};
        if (init == nullptr || find == nullptr || cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess ||
            init() != 0 || find(bus, &device_) != 0) {
            memory_info_ = nullptr, utilization_ = nullptr;
            return;
        }
        char driver[96] = {};
        if (version != nullptr && version(driver, sizeof driver - 1) == 0) driver_ = driver;
    }
    const std::string& driver() const { return driver_; }  // "580.65.06"; "" where it is not known
    std::int64_t used() const {
        MemoryInfo info{};
        return memory_info_ != nullptr && memory_info_(device_, &info) == 0 ? std::int64_t(info.used) : 0;
    }

    // Percent of the last sampling period in which a kernel ran; -1 where that is not known.
    int utilization() const {
        Utilization rates{};
        return utilization_ != nullptr && utilization_(device_, &rates) == 0 ? int(rates.gpu) : -1;
    }

  private:
    struct MemoryInfo {
        unsigned long long total, free, used;
    };
    struct Utilization {
        unsigned gpu, memory;
    };
    void* device_ = nullptr;
    int (*memory_info_)(void*, MemoryInfo*) = nullptr;
    int (*utilization_)(void*, Utilization*) = nullptr;
    std::string driver_;
};

const Nvml& nvml() {
    static const Nvml library;
    return library;
}

// Why this machine cannot run us, or "".
std::string find_problem() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (status == cudaErrorInsufficientDriver)
        return fmt::format("the NVIDIA driver is too old for CUDA {}.{}", CUDART_VERSION / 1000,
                           CUDART_VERSION % 1000 / 10);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) return "no NVIDIA GPU";
    if (status != cudaSuccess) return fmt::format("the NVIDIA driver fails ({})", cudaGetErrorString(status));
    cudaDeviceProp properties{};
    INVAR_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    const cudaError_t code = find_code();
    if (code == cudaSuccess) return "";
    std::string built;
    for (const int number : architectures())
        built += fmt::format("{}{}.{}", built.empty() ? "" : ", ", number / 100, number / 10 % 10);
    return fmt::format("{} has compute capability {}.{}, and this build is for {} ({})", properties.name,
                       properties.major, properties.minor, built, cudaGetErrorString(code));
}

}  // namespace

void check_call(cudaError_t status, const char* call) {
    if (status == cudaSuccess) [[likely]]
        return;
    cudaGetLastError();  // so that the next call is not blamed for it
    fail("CUDA: {} in {}", cudaGetErrorString(status), call);
}

cudaStream_t stream() {
    static const cudaStream_t stream = [] {
        cudaStream_t made = nullptr;
        INVAR_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
        return made;
    }();
    return stream;
}

bool capturing() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    INVAR_CUDA_CHECK(cudaStreamIsCapturing(stream(), &status));
    return status != cudaStreamCaptureStatusNone;
}

const KernelOptions& options() {
    return current_options();
}
void set_options(const KernelOptions& options) {
    current_options() = options;
}
bool may_time_candidates() {
    return options().benchmark && !options().deterministic && !capturing();
}

void* workspace() {
    static const auto* storage = new Storage(kWorkspaceBytes, Device::cuda(), Purpose::workspace);
    return storage->data();
}

std::size_t shared_memory_limit() {
    static const int bytes = [] {
        int found = 0;
        INVAR_CUDA_CHECK(cudaDeviceGetAttribute(&found, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
        return found;
    }();
    return std::size_t(bytes);
}

std::string description() {
    cudaDeviceProp properties{};
    INVAR_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    const std::size_t cudnn = cudnnGetVersion();
    const std::string driver = nvml().driver().empty() ? "" : ", driver " + nvml().driver();
    return fmt::format("{}, {} multiprocessors, {:.0f} GiB, CUDA {}.{}, cuDNN {}.{}{}", properties.name,
                       properties.multiProcessorCount, double(properties.totalGlobalMem) / double(std::size_t(1) << 30),
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cudnn / 10000, cudnn / 100 % 100, driver);
}

std::int64_t memory_used() {
    return nvml().used();
}
// The driver samples a few times a second; to ask it more often would cost a small step more than it tells.
int utilization() {
    static std::mutex mutex;
    static std::chrono::steady_clock::time_point asked;
    static int percent = -1;
    const std::lock_guard lock(mutex);
    if (const auto now = std::chrono::steady_clock::now(); percent < 0 || now - asked > std::chrono::milliseconds(200))
        percent = nvml().utilization(), asked = now;
    return percent;
}

}  // namespace invar::cuda

extern "C" int invar_cuda_utilization() {
    return invar::cuda::utilization();
}

// What libinvar calls after loading this library: nullptr, or why there is nothing to run on.
extern "C" const char* invar_cuda_start() {
    static const std::string problem = []() -> std::string {
        try {
            std::string found = invar::cuda::find_problem();
            if (!found.empty()) return found;
            invar::cuda::stream();
            invar::register_raw_memory(invar::Device::Kind::cuda, std::make_unique<invar::cuda::CudaMemory>());
            invar::register_device(invar::Device::Kind::cuda, invar::cuda::kernels());
            return "";
        } catch (const invar::Error& error) {
            return error.what();
        }
    }();
    return problem.empty() ? nullptr : problem.c_str();
}
