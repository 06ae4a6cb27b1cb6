#include "invar/train/recorded_step.h"

#include <algorithm>
#include <utility>

#include "invar/autograd/node.h"
#include "invar/core/arrivals.h"
#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/dist/communicator.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

constexpr int kWarmUps = 3;           // steps on batches of a shape before it is recorded
constexpr std::size_t kMaxForms = 8;  // shapes that are worth a recording

}  // namespace

// Groups of batches of the same shapes, and the recording that serves them.
struct RecordedStep::Form {
    explicit Form(std::span<const Batch> group) {
        for (const Batch& batch : group) sizes.insert(sizes.end(), {batch.size, batch.whole()});
        for (const Batch& batch : group)
            for (const auto& [name, tensor] : batch.tensors()) shapes.push_back({name, tensor.shape(), tensor.dtype()});
    }
    void fill_inputs(std::span<const Batch> group) const {
        for (std::size_t i = 0; i < group.size(); ++i)
            for (const auto& [name, tensor] : group[i].tensors()) {
                const Tensor& input = inputs[i][name];
                kernels_for(input.device()).copy(tensor.view(), input.view());
            }
    }
    struct Input {
        std::string name;
        Shape shape;
        Dtype dtype;
        bool operator==(const Input&) const = default;
    };
    std::vector<Input> shapes;  // of all batches, one after the other
    std::vector<std::int64_t> sizes;
    int runs = 0;
    std::vector<Batch> inputs;  // what the recording reads
    Tensor result;              // what it writes
    HostSide host;
    std::unique_ptr<Recording> recording;
    int number = 0;  // of the recording
};

RecordedStep::RecordedStep(Device device, Function step, RecordOptions options)
    : device_(device), step_(std::move(step)), options_(std::move(options)) {
    if (device_.is_cpu())
        why_not_ = "a CPU has nothing to gain from it";
    else if (!options_.record)
        why_not_ = "it is turned off";
}

RecordedStep::~RecordedStep() = default;

Tensor RecordedStep::operator()(std::span<const Batch> group) {
    parts_ = 0;
    if (!why_not_.empty()) return step_(group);
    forget_what_changed();
    Form* form = form_of(group);
    if (form == nullptr) {
        if (forms_.size() == kMaxForms) {
            if (!std::exchange(overfull_, true) && options_.note)
                options_.note(
                    fmt::format("batches come in more than {} shapes; the others run without a CUDA graph", kMaxForms));
        } else {
            form = forms_.emplace_back(std::make_unique<Form>(group)).get();
        }
    }
    Way way = Way::run;
    if (form != nullptr) way = form->recording ? Way::replay : form->runs++ < kWarmUps ? Way::run : Way::record;
    way = agree(way, form);
    if (way == Way::run) return step_(group);
    return way == Way::record ? record(*form, group) : replay(*form, group);
}

// What all ranks do. Where one has nothing to replay all record, if all are ready to.
RecordedStep::Way RecordedStep::agree(Way way, const Form* form) const {
    if (world().alone()) return way;
    struct Wish {
        Way way;
        int number;
    };
    const std::vector<Wish> all = world().gathered(Wish{way, way == Way::replay ? form->number : 0});
    const auto wants = [&](Way one) {
        return std::ranges::any_of(all, [&](const Wish& wish) { return wish.way == one; });
    };
    if (wants(Way::run)) return Way::run;
    if (wants(Way::record)) return Way::record;
    const auto same = [&](const Wish& wish) { return wish.number == all[0].number; };
    return std::ranges::all_of(all, same) ? Way::replay : Way::run;
}

bool RecordedStep::settled(std::span<const Batch> group) const {
    if (!why_not_.empty()) return true;
    const Form* const form = form_of(group);
    return form != nullptr && form->recording;
}

Tensor RecordedStep::record(Form& form, std::span<const Batch> group) {
    form.recording.reset();
    form.host = {};
    form.inputs.clear();
    Communicator& ranks = world();
    bool told = ranks.alone();  // the others, whether it can be recorded here
    for (const Batch& batch : group) {
        const PurposeScope purpose(Purpose::data);
        form.inputs.push_back(batch.map([](const Tensor& tensor) { return Tensor::empty_like(tensor); }));
    }
    // What the steps so far left behind would lie idle beside the recording's own memory.
    if (!pool_) {
        release_cached_memory(device_);
        pool_.emplace(device_);
    }
    form.fill_inputs(group);
    Arrivals::await_all_sent();
    try {
        const HostSide::Scope scope(form.host);
        form.host.depends_on([] { return default_generator().state().seed; });
        form.recording = kernels_for(device_).record(*pool_, [&] {
            const std::uint64_t hooks = hooks_run();
            Arrivals::begin_recordings();
            form.result = step_(form.inputs);
            Arrivals::await_all_sent();  // a recording ends with nothing under way
            check(hooks_run() == hooks, "gradient hooks run on the host");
            if (std::exchange(told, true)) return;
            check(!ranks.any(false), "another rank cannot record it");
        });
    } catch (const RankError&) {
        throw;
    } catch (const Error& error) {
        form.host.roll_back();
        if (!told) (void)ranks.any(true);
        give_up(error.what());
        return step_(group);
    }
    parts_ = form.recording->parts();
    form.number = ++recorded_;
    return form.result;
}

Tensor RecordedStep::replay(Form& form, std::span<const Batch> group) {
    form.fill_inputs(group);
    Arrivals::await_all_sent();
    form.host.replay();
    form.recording->replay();
    parts_ = form.recording->parts();
    return form.result;
}

RecordedStep::Form* RecordedStep::form_of(std::span<const Batch> group) const {
    const Form wanted(group);
    const auto same = [&](const std::unique_ptr<Form>& form) {
        return form->shapes == wanted.shapes && form->sizes == wanted.sizes;
    };
    const auto found = std::find_if(forms_.begin(), forms_.end(), same);
    return found == forms_.end() ? nullptr : found->get();
}

// Where one has changed so have the others, which are of the same function.
void RecordedStep::forget_what_changed() {
    const auto changed = [](const std::unique_ptr<Form>& form) { return form->recording && !form->host.unchanged(); };
    if (std::ranges::any_of(forms_, changed)) forget();
}

void RecordedStep::forget() {
    forms_.clear();
}

void RecordedStep::give_up(const std::string& reason) {
    why_not_ = reason;
    forms_.clear();
    pool_.reset();
    if (options_.note) options_.note("steps run without a CUDA graph: " + reason);
}

}  // namespace invar
