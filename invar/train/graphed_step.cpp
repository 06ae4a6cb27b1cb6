#include "invar/train/graphed_step.h"

#include <algorithm>
#include <utility>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

constexpr int kWarmUps = 3;           // steps on batches of a shape before it is recorded
constexpr std::size_t kMaxForms = 8;  // shapes that are worth a recording

}  // namespace

// Groups of batches of the same shapes, and the recording that serves them.
struct GraphedStep::Form {
    explicit Form(std::span<const Batch> group) {
        for (const Batch& batch : group) sizes.push_back(batch.size);
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
    std::vector<Batch> inputs;         // what the recording reads
    Tensor loss;                       // what it writes
    std::vector<bool> have_gradients;  // of the parameters, after it
    std::unique_ptr<Recording> recording;
};

// What a recording holds as it was then: where any of it changes, the recording is of no more use.
struct GraphedStep::Constants {
    explicit Constants(Setup& setup)
        : groups(setup.optimizer->groups()),
          schedule(setup.optimizer->schedule()),
          scaler(setup.scaler->spec()),
          clip(setup.clip),
          precision(setup.precision),
          weights(setup.optimizer->store().flat().weights),
          shadow(setup.optimizer->store().flat().shadow),
          training(setup.model->training()),
          cuts(setup.optimizer->store().cuts()),
          learns(learning(setup.optimizer->store())),
          overrides_changed(setup.overrides_changed),
          seed(default_generator().state().seed) {}
    std::vector<OptimizerSpec> groups;
    ScheduleSpec schedule;
    ScalerSpec scaler;
    ClipSpec clip;
    Precision precision;
    const void *weights, *shadow;
    bool training;
    int cuts;
    std::vector<bool> learns;  // of each parameter: it is not frozen
    int overrides_changed;
    std::uint64_t seed;
    bool operator==(const Constants&) const = default;

  private:
    static std::vector<bool> learning(const ParameterStore& store) {
        std::vector<bool> learns;
        for (const Parameter* parameter : store.parameters()) learns.push_back(parameter->value.requires_grad());
        return learns;
    }
};

GraphedStep::GraphedStep(Setup& setup, bool record, const ReportSlots& reports, Note note)
    : setup_(setup), reports_(reports), note_(std::move(note)), records_(record && !setup.device.is_cpu()) {}

GraphedStep::~GraphedStep() = default;

Tensor GraphedStep::operator()(std::span<const Batch> group) {
    parts_ = 0;
    if (!records_) return run(group);
    forget_what_changed();
    Form* form = form_of(group);
    if (form == nullptr) {
        if (forms_.size() == kMaxForms) {
            if (!std::exchange(overfull_, true) && note_)
                note_(
                    fmt::format("batches come in more than {} shapes; the others run without a CUDA graph", kMaxForms));
            return run(group);
        }
        form = forms_.emplace_back(std::make_unique<Form>(group)).get();
    }
    if (form->recording) return replay(*form, group);
    return form->runs++ < kWarmUps ? run(group) : record(*form, group);
}

bool GraphedStep::settled(std::span<const Batch> group) const {
    const Form* const form = records_ ? form_of(group) : nullptr;
    return !records_ || (form != nullptr && form->recording);
}

Tensor GraphedStep::run(std::span<const Batch> group) {
    return training_step(setup_.loss, *setup_.model, *setup_.optimizer, *setup_.scaler, setup_.precision, setup_.clip,
                         group, reports_);
}

Tensor GraphedStep::record(Form& form, std::span<const Batch> group) {
    for (const Batch& batch : group) {
        const PurposeScope purpose(Purpose::data);
        form.inputs.push_back(batch.map([](const Tensor& tensor) { return Tensor::empty_like(tensor); }));
    }
    // What the steps so far left behind would lie idle beside the recording's own memory.
    if (!pool_) {
        release_cached_memory(setup_.device);
        pool_.emplace(setup_.device);
    }
    form.fill_inputs(group);
    try {
        form.recording = kernels_for(setup_.device).record(*pool_, [&] {
            const std::uint64_t hooks = hooks_run();
            form.loss = run(form.inputs);
            check(hooks_run() == hooks, "gradient hooks run on the host");
        });
    } catch (const Error& error) {
        setup_.scaler->forget_step();
        give_up(error.what());
        return run(group);
    }
    form.have_gradients = setup_.optimizer->store().have_gradients();
    parts_ = form.recording->parts();
    return form.loss;
}

Tensor GraphedStep::replay(Form& form, std::span<const Batch> group) {
    form.fill_inputs(group);
    // The host's part of a step: who saved one of these for a backward of his own must notice, and the gradients that
    // it leaves are there.
    ParameterStore& store = setup_.optimizer->store();
    for (const Tensor& written : {store.weights(), store.shadow()})
        if (written) written.bump_version();
    store.set_have_gradients(form.have_gradients);
    form.recording->replay();
    parts_ = form.recording->parts();
    return form.loss;
}

GraphedStep::Form* GraphedStep::form_of(std::span<const Batch> group) const {
    const Form wanted(group);
    const auto same = [&](const std::unique_ptr<Form>& form) {
        return form->shapes == wanted.shapes && form->sizes == wanted.sizes;
    };
    const auto found = std::find_if(forms_.begin(), forms_.end(), same);
    return found == forms_.end() ? nullptr : found->get();
}

void GraphedStep::forget_what_changed() {
    auto now = std::make_unique<Constants>(setup_);
    if (constants_ && *constants_ == *now) return;
    constants_ = std::move(now);
    forms_.clear();
}

void GraphedStep::give_up(const std::string& reason) {
    records_ = false;
    forms_.clear();
    pool_.reset();
    if (note_) note_("steps run without a CUDA graph: " + reason);
}

}  // namespace invar
