#include "invar/kernels/cuda/copies.h"

#include <array>

#include "invar/kernels/cuda/device.h"

namespace invar::cuda {

namespace {

class PinnedMemory final : public RawMemory {
  public:
    void* allocate(std::size_t bytes) override {
        void* data = nullptr;
        const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return nullptr;
        }
        check_call(status, "cudaHostAlloc");
        return data;
    }
    void free(void* data, std::size_t) override { cudaFreeHost(data); }
};

class StreamOfCopies final : public CopyQueue {
  public:
    StreamOfCopies() {
        INVAR_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        INVAR_CUDA_CHECK(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming));
        for (cudaEvent_t& event : copied_) INVAR_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    ~StreamOfCopies() override {
        cudaStreamSynchronize(stream_);
        for (const cudaEvent_t event : copied_) cudaEventDestroy(event);
        cudaEventDestroy(reached_);
        cudaStreamDestroy(stream_);
    }

    // The memory it writes may have been freed by work that is still to run, so it stays behind that.
    void upload(void* device, const void* host, std::size_t bytes) override {
        if (bytes == 0) return;
        if (!behind_) {
            INVAR_CUDA_CHECK(cudaEventRecord(reached_, cuda::stream()));
            INVAR_CUDA_CHECK(cudaStreamWaitEvent(stream_, reached_, 0));
            behind_ = true;
        }
        INVAR_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
    }
    std::uint64_t ticket() override {
        behind_ = false;
        ++issued_;
        INVAR_CUDA_CHECK(cudaEventRecord(event_of(issued_), stream_));
        return issued_;
    }
    void join(std::uint64_t ticket) override {
        INVAR_CUDA_CHECK(cudaStreamWaitEvent(cuda::stream(), event_of(ticket), 0));
    }
    bool done(std::uint64_t ticket) override {
        const cudaError_t status = cudaEventQuery(event_of(ticket));
        if (status == cudaErrorNotReady) return false;
        check_call(status, "a copy to the device");
        return true;
    }
    void wait(std::uint64_t ticket) override { INVAR_CUDA_CHECK(cudaEventSynchronize(event_of(ticket))); }

  private:
    // An event that was used again stands for later copies, and so for the earlier ones too.
    cudaEvent_t event_of(std::uint64_t ticket) const { return copied_[ticket % copied_.size()]; }

    cudaStream_t stream_ = nullptr;
    cudaEvent_t reached_ = nullptr;
    std::array<cudaEvent_t, 32> copied_{};
    std::uint64_t issued_ = 0;
    bool behind_ = false;  // the copies since the last ticket wait for the computations
};

}  // namespace

std::unique_ptr<RawMemory> pinned_memory() {
    return std::make_unique<PinnedMemory>();
}

std::unique_ptr<CopyQueue> copy_queue() {
    return std::make_unique<StreamOfCopies>();
}

}  // namespace invar::cuda
