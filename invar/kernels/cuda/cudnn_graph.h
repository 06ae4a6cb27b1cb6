// cuDNN's graph interface, as much of it as a convolution needs: descriptors that free themselves, and a plan that was
// chosen among the engines cuDNN proposes.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace invar::cuda {

void check_cudnn(cudnnStatus_t status, const char* call);
#define INVAR_CUDNN_CHECK(call) ::invar::cuda::check_cudnn((call), #call)

cudnnHandle_t cudnn_handle();  // on our stream

class Descriptor {
  public:
    explicit Descriptor(cudnnBackendDescriptorType_t type);
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : raw_(other.raw_) { other.raw_ = nullptr; }
    Descriptor& operator=(Descriptor&&) = delete;

    Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                    const void* values);
    Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
        return set(name, CUDNN_TYPE_INT64, std::int64_t(values.size()), values.data());
    }
    Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
        return set(name, CUDNN_TYPE_INT64, 1, &value);
    }
    Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
    }
    Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
    }
    Descriptor& finalize();
    bool try_finalize() { return cudnnBackendFinalize(raw_) == CUDNN_STATUS_SUCCESS; }
    // How many values there were; at most `room` are written.
    std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                     void* values) const;
    cudnnBackendDescriptor_t raw() const { return raw_; }

  private:
    cudnnBackendDescriptor_t raw_ = nullptr;
};

// Which engines may serve: FP32 exactly or through TF32, and only those that give the same bits every time.
struct EngineRules {
    bool tensor_cores = true;
    bool deterministic = true;
    std::int64_t refused = -1;  // the number of an engine that may not serve
};

struct Binding {
    std::int64_t id;
    void* data;
};

// An operation graph with the engine that runs it. Keeps every descriptor it was made of.
class GraphPlan {
  public:
    explicit GraphPlan(std::vector<Descriptor> parts) : parts_(std::move(parts)) {}
    // The operations are the last `operations` of the parts. False where no engine can do it.
    bool choose(std::size_t operations, const EngineRules& rules);
    // Times the candidates on these operands and keeps the fastest; results are written.
    void choose_by_timing(std::span<const Binding> bindings);
    bool timed() const { return timed_; }
    void run(std::span<const Binding> bindings) const { execute(chosen_, bindings); }

  private:
    struct Candidate {
        Descriptor config, plan;
        std::int64_t workspace;
    };
    void collect(const Descriptor& graph, cudnnBackendHeurMode_t mode, const EngineRules& rules);
    void execute(std::size_t candidate, std::span<const Binding> bindings) const;
    std::vector<Descriptor> parts_;
    std::vector<Candidate> candidates_;
    std::size_t chosen_ = 0;
    bool timed_ = false;
};

}  // namespace invar::cuda
