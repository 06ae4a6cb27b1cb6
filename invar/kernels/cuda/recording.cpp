#include "invar/kernels/cuda/recording.h"

#include <utility>

#include "invar/core/error.h"
#include "invar/kernels/cuda/device.h"

namespace invar::cuda {

namespace {

// Work comes from one thread at a time, as all work of the stream does.
RecordedRandom*& current() {
    static RecordedRandom* random = nullptr;
    return random;
}

// Between the beginning and the end of recording. Ends it, and forgets what was recorded, where the work throws.
class Capture {
  public:
    explicit Capture(RecordedRandom& random) {
        // Relaxed: new blocks of the pool may come from cudaMalloc meanwhile.
        INVAR_CUDA_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
        current() = &random;
    }
    cudaGraph_t end() {
        cudaGraph_t graph = nullptr;
        current() = nullptr;
        check_call(cudaStreamEndCapture(stream(), &graph), "the recorded work");
        return graph;
    }
    ~Capture() {
        if (current() == nullptr) return;
        current() = nullptr;
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(stream(), &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        cudaGetLastError();
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
};

class Graph final : public Recording {
  public:
    Graph(const MemoryPool& pool, const std::function<void()>& work) {
        try {
            capture(pool, work);
        } catch (...) {
            release();
            default_generator().set_state(random_.start());
            throw;
        }
        // The host has gone through the work, so its side is done; the device's is still to run.
        INVAR_CUDA_CHECK(cudaGraphLaunch(ready_, stream()));
    }
    ~Graph() override { release(); }

    void replay() override {
        const RngState now = default_generator().state();
        if (drawn_ > 0) {
            check(now.seed == random_.start().seed, "a recorded step cannot go on with the random numbers of seed {}",
                  now.seed);
            if (now.offset != reached_) place_counter(now.offset);
        }
        INVAR_CUDA_CHECK(cudaGraphLaunch(ready_, stream()));
        default_generator().reserve(drawn_);
        reached_ = now.offset + drawn_;
    }
    std::int64_t parts() const override { return parts_; }

  private:
    void capture(const MemoryPool& pool, const std::function<void()>& work) {
        place_counter(random_.start().offset);
        {
            const MemoryPool::Scope scope(pool);
            Capture capture(random_);
            work();
            if (const std::uint64_t rest = random_.take_drawn(); rest > 0) advance(random_.counter(), rest, stream());
            graph_ = capture.end();
        }
        drawn_ = default_generator().state().offset - random_.start().offset;
        reached_ = random_.start().offset + drawn_;
        std::size_t nodes = 0;
        INVAR_CUDA_CHECK(cudaGraphGetNodes(graph_, nullptr, &nodes));
        parts_ = std::int64_t(nodes);
        INVAR_CUDA_CHECK(cudaGraphInstantiate(&ready_, graph_, 0));
        INVAR_CUDA_CHECK(cudaGraphUpload(ready_, stream()));
    }
    void place_counter(std::uint64_t offset) {
        INVAR_CUDA_CHECK(cudaMemcpyAsync(random_.counter(), &offset, sizeof offset, cudaMemcpyHostToDevice, stream()));
    }
    void release() {
        if (ready_ != nullptr) {
            cudaStreamSynchronize(stream());  // it may still be running
            cudaGraphExecDestroy(ready_);
        }
        if (graph_ != nullptr) cudaGraphDestroy(graph_);
    }

    RecordedRandom random_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t ready_ = nullptr;
    std::int64_t parts_ = 0;
    std::uint64_t drawn_ = 0;    // by each run
    std::uint64_t reached_ = 0;  // what the counter will be when everything given to the device is done
};

}  // namespace

RecordedRandom::RecordedRandom()
    : storage_(sizeof(std::uint64_t), Device::cuda(), Purpose::workspace), start_(default_generator().state()) {}

std::uint64_t RecordedRandom::take_drawn() {
    const std::uint64_t drawn = default_generator().state().offset - start_.offset;
    return drawn - std::exchange(taken_, drawn);
}

RecordedRandom* recorded_random() {
    return current();
}

void refuse_recording(const char* what) {
    if (current() != nullptr) [[unlikely]]
        fail("{} cannot be recorded", what);
}

std::unique_ptr<Recording> record(const MemoryPool& pool, const std::function<void()>& work) {
    return std::make_unique<Graph>(pool, work);
}

}  // namespace invar::cuda
