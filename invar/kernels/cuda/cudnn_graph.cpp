#include "invar/kernels/cuda/cudnn_graph.h"

#include <algorithm>
#include <optional>

#include "invar/core/error.h"
#include "invar/kernels/cuda/device.h"

namespace invar::cuda {

namespace {

constexpr std::size_t kCandidates = 8;  // that are worth making a plan for
constexpr std::int64_t kWorkspaceLimit = std::int64_t(1) << 30;

bool allowed(const Descriptor& config, const EngineRules& rules) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.raw();
    config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
    std::int64_t number = -1;
    engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    if (rules.refused >= 0 && number == rules.refused) return false;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    const std::int64_t count =
        engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT); ++i) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && rules.deterministic) return false;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !rules.tensor_cores) return false;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
    }
    return true;
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* call) {
    if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
        fail("cuDNN: {} in {}", cudnnGetErrorString(status), call);
}

cudnnHandle_t cudnn_handle() {
    static const cudnnHandle_t handle = [] {
        cudnnHandle_t made = nullptr;
        INVAR_CUDNN_CHECK(cudnnCreate(&made));
        INVAR_CUDNN_CHECK(cudnnSetStream(made, stream()));
        return made;
    }();
    return handle;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
    INVAR_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &raw_));
}

Descriptor::~Descriptor() {
    if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
    INVAR_CUDNN_CHECK(cudnnBackendSetAttribute(raw_, name, type, count, values));
    return *this;
}

Descriptor& Descriptor::finalize() {
    INVAR_CUDNN_CHECK(cudnnBackendFinalize(raw_));
    return *this;
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                             void* values) const {
    std::int64_t count = 0;
    INVAR_CUDNN_CHECK(cudnnBackendGetAttribute(raw_, name, type, room, &count, values));
    return count;
}

bool GraphPlan::choose(std::size_t operations, const EngineRules& rules) {
    std::vector<cudnnBackendDescriptor_t> ops;
    for (std::size_t i = parts_.size() - operations; i < parts_.size(); ++i) ops.push_back(parts_[i].raw());
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t handle = cudnn_handle();
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::int64_t(ops.size()), ops.data());
    if (!graph.try_finalize()) return false;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
        if (candidates_.empty()) collect(graph, mode, rules);
    parts_.push_back(std::move(graph));
    return !candidates_.empty();
}

void GraphPlan::collect(const Descriptor& graph, cudnnBackendHeurMode_t mode, const EngineRules& rules) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!heuristics.try_finalize()) return;
    std::int64_t count = 0;
    if (cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &count, nullptr) != CUDNN_STATUS_SUCCESS)
        return;
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raws;
    for (std::int64_t i = 0; i < count; ++i) {
        configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        raws.push_back(configs.back().raw());
    }
    if (count > 0)
        count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raws.data());
    const cudnnHandle_t handle = cudnn_handle();
    const std::size_t wanted = may_time_candidates() ? kCandidates : 1;  // plans take time to make
    for (std::size_t i = 0; i < std::size_t(count) && candidates_.size() < wanted; ++i) {
        if (!allowed(configs[i], rules)) continue;
        Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]);
        if (!plan.try_finalize()) continue;
        std::int64_t bytes = 0;
        plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
        if (bytes <= kWorkspaceLimit) candidates_.push_back({std::move(configs[i]), std::move(plan), bytes});
    }
}

void GraphPlan::execute(std::size_t candidate, std::span<const Binding> bindings) const {
    const Candidate& chosen = candidates_[candidate];
    std::optional<Scratch> large;
    if (std::size_t(chosen.workspace) > kWorkspaceBytes) large.emplace(std::size_t(chosen.workspace));
    void* const work = chosen.workspace == 0 ? nullptr : large ? large->data() : workspace();
    std::vector<std::int64_t> ids;
    std::vector<void*> data;
    for (const Binding& binding : bindings) ids.push_back(binding.id), data.push_back(binding.data);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::int64_t(data.size()), data.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work);
    pack.finalize();
    INVAR_CUDNN_CHECK(cudnnBackendExecute(cudnn_handle(), chosen.plan.raw(), pack.raw()));
}

void GraphPlan::choose_by_timing(std::span<const Binding> bindings) {
    timed_ = true;
    float best = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
        const float time = time_on_stream([&] { execute(i, bindings); });
        if (best == 0 || time < best) best = time, chosen_ = i;
    }
}

}  // namespace invar::cuda
