#include "invar/diagnose/op_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "invar/kernels/devices.h"
#include "invar/ops/apply.h"

namespace invar {

namespace {

const OpEntry* entry_of(std::string_view op) {
    static const std::vector<OpEntry> all = registered_ops();
    const auto found =
        std::ranges::lower_bound(all, op, {}, [](const OpEntry& entry) { return std::string_view(entry.name); });
    return found != all.end() && found->name == op ? &*found : nullptr;
}

bool is_product(std::string_view op) {
    const OpEntry* const entry = entry_of(op);
    return entry != nullptr && entry->cast == CastClass::low;
}

// Of a table they read and write the rows that are asked for.
bool picks_rows(std::string_view op) {
    return op == "embedding" || op == "gather" || op == "index";
}

// What is read may have 16 bits where the arithmetic has 32: softmax, norms and losses widen what they read.
Dtype computed_in(const char* op, const Tensors& inputs, const Tensor& result) {
    const OpEntry* const entry = entry_of(op);
    const bool wide = entry != nullptr && (entry->cast == CastClass::fp32 || entry->cast == CastClass::wide_inside);
    Dtype dtype = result.dtype();
    bool any = false;
    for (const Tensor& input : inputs) {
        if (!input || !is_floating(input.dtype())) continue;
        dtype = any ? promote(dtype, input.dtype()) : input.dtype();
        any = true;
    }
    return wide && is_floating(dtype) ? promote(dtype, Dtype::f32) : dtype;
}

bool share_memory(const Tensor& a, const Tensor& b) {
    return a && b && a.storage() == b.storage();
}

std::string text_of(const Tensors& tensors) {
    std::string text;
    for (const Tensor& tensor : tensors)
        if (tensor)
            text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name_of(tensor.dtype()), tensor.shape().str());
    return text;
}

double bytes_forward(const ForwardRun& run, double flops) {
    // A region that is run again leaves a product out that nobody will read.
    if (is_product(run.op) && flops == 0) return 0;
    const double written = bytes_of(run.result);
    double read = 0;
    for (const Tensor& input : run.inputs) {
        if (share_memory(input, run.result)) return 0;  // a view: nothing moves
        read += picks_rows(run.op) ? std::min(bytes_of(input), written) : bytes_of(input);
    }
    return read + written;
}

// Weight gradients that went straight into their leaves are written too.
double bytes_backward(const BackwardRun& run, double saved) {
    double written = 0;
    for (std::size_t i = 0; i < run.node.inputs().size(); ++i) {
        const bool handed_on = i < run.outgoing.size() && run.outgoing[i];
        const Tensor gradient = handed_on ? run.outgoing[i] : weight_gradient(run.node, i);
        if (share_memory(gradient, run.incoming)) continue;
        const double bytes = bytes_of(gradient), rows = 2 * bytes_of(run.incoming);
        written += picks_rows(run.node.name()) ? std::min(bytes, rows) : bytes;
    }
    return written > 0 ? bytes_of(run.incoming) + saved + written : 0;
}

}  // namespace

std::string TimedOp::dtype_name() const {
    return part == StepPart::loading ? "-" : tf32 ? "tf32" : std::string(name_of(dtype));
}

class OpRecorder::Stopped {
  public:
    explicit Stopped(OpRecorder& recorder) : recorder_(recorder) {
        kernels_for(recorder.device_).synchronize();
        at_ = recorder.elapsed();
    }
    ~Stopped() { recorder_.stopped_for_ += recorder_.elapsed() - at_; }
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;
    double at() const { return at_; }

  private:
    OpRecorder& recorder_;
    double at_;
};

double OpRecorder::elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count() - stopped_for_;
}

void OpRecorder::clear() {
    while (!open_.empty()) open_.pop_back();  // the inner ones first, as scopes that count end
    computed_in_.clear();
    made_ahead_.clear();
    ops_.clear();
}

void OpRecorder::begin_step() {
    clear();
    kernels_for(device_).synchronize();
    began_ = std::chrono::steady_clock::now();
    stopped_for_ = 0;
}

double OpRecorder::end_step() {
    kernels_for(device_).synchronize();
    return elapsed();
}

// What runs inside another one belongs to its part of the step.
OpRecorder::Open& OpRecorder::open(StepPart part, const char* name) {
    if (!open_.empty()) part = open_.back().op.part, open_.back().holds_others = true;
    Open& opened = open_.emplace_back();
    opened.op.part = part;
    opened.op.op = name;
    opened.flops = std::make_unique<FlopCount>();
    return opened;
}

void OpRecorder::close(double now, double bytes) {
    TimedOp op = std::move(open_.back().op);
    const Open& ended = open_.back();
    op.seconds = now - op.start;
    op.own = std::max(0.0, op.seconds - ended.inside);
    // The work of a region is that of the operations in it.
    op.flops = std::max(0.0, ended.flops->count() - ended.flops_inside);
    op.bytes = ended.holds_others ? 0 : bytes;
    const double flops = op.flops + ended.flops_inside;
    open_.pop_back();
    if (!open_.empty()) open_.back().inside += op.seconds, open_.back().flops_inside += flops;
    ops_.push_back(std::move(op));
}

void OpRecorder::begin_forward(const char* op) {
    if (const OpEntry* const entry = entry_of(op); entry != nullptr && !entry->has_gradient) return;
    const Stopped clock(*this);
    open(StepPart::forward, op).op.start = clock.at();
}

void OpRecorder::forward(const ForwardRun& run) {
    const Stopped clock(*this);
    if (open_.empty() || open_.back().op.op != run.op) return;
    Open& mine = open_.back();
    mine.op.module = run.module;
    mine.op.dtype = computed_in(run.op, run.inputs, run.result);
    mine.op.tf32 = mine.op.dtype == Dtype::f32 && is_product(run.op) && Tf32Scope::on() && !device_.is_cpu();
    mine.op.shapes = fmt::format("{} -> {}", text_of(run.inputs), text_of({run.result}));
    if (run.result.node()) computed_in_[run.result.node().get()] = mine.op.dtype;
    const bool handed_on = made_ahead_.erase(run.result.raw()) > 0;
    close(clock.at(), handed_on ? 0 : bytes_forward(run, mine.flops->count()));
}

void OpRecorder::begin_backward(const Node& node) {
    const Stopped clock(*this);
    Open& mine = open(StepPart::backward, node.name());
    mine.op.module = node.module();
    mine.op.start = clock.at();
}

void OpRecorder::read_saved(const Tensor& tensor) {
    const Stopped clock(*this);
    if (!open_.empty()) open_.back().read.emplace(tensor.raw(), bytes_of(tensor));
}

void OpRecorder::backward(const BackwardRun& run) {
    const Stopped clock(*this);
    Open& mine = open_.back();
    const auto known = computed_in_.extract(&run.node);
    mine.op.dtype = known ? known.mapped() : run.incoming.dtype();
    mine.op.tf32 = mine.op.dtype == Dtype::f32 && is_product(mine.op.op) && Tf32Scope::on() && !device_.is_cpu();
    mine.op.shapes = fmt::format("{} -> {}", text_of({run.incoming}), text_of(run.outgoing));
    double saved = 0;
    for (const auto& [place, bytes] : mine.read) saved += bytes;
    bool handed_on = false;
    for (const Tensor& gradient : run.outgoing)
        handed_on = (gradient && made_ahead_.erase(gradient.raw()) > 0) || handed_on;
    close(clock.at(), handed_on ? 0 : bytes_backward(run, saved));
}

void OpRecorder::begin_part(StepPart part, const char* name, Dtype dtype, double bytes) {
    const Stopped clock(*this);
    Open& mine = open(part, name);
    mine.op.module = part == StepPart::forward ? ModuleScope::path() : fmt::format("({})", name_of(part));
    mine.op.dtype = dtype;
    mine.op.bytes = bytes;
    mine.op.start = clock.at();
}

void OpRecorder::end_part() {
    const Stopped clock(*this);
    close(clock.at(), open_.back().op.bytes);
}

}  // namespace invar
