// Whether the splits, the labels, the model and the loss fit each other, and whether a loss comes out at all.
#include <cmath>
#include <cstring>

#include "invar/amp/autocast.h"
#include "invar/autograd/watch.h"
#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/replay.h"
#include "invar/ops/losses.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 8;

// What the model hands to the loss, and how many classes the loss tells apart.
class OutputWatcher : public OpWatcher {
  public:
    explicit OutputWatcher(ShapeCheck& result) : result_(result) {}
    void forward(const ForwardRun& run) override {
        const bool of_loss = run.module == "loss";
        if (!of_loss) result_.output = run.result.shape();
        const bool classes = std::strcmp(run.op, "cross_entropy") == 0 || std::strcmp(run.op, "nll_loss") == 0;
        if (of_loss && classes) result_.classes = run.inputs[0].size(-1);
    }

  private:
    ShapeCheck& result_;
};

const TensorSummary* find(const DataCheck& data, const std::string& name) {
    for (const TensorSummary& tensor : data.tensors)
        if (tensor.name == name) return &tensor;
    return nullptr;
}

// How the tensors of two splits differ; "" where they do not.
std::string difference_of(const DataCheck& a, const DataCheck& b) {
    const auto missing = [](const DataCheck& has, const DataCheck& lacks) -> std::string {
        for (const TensorSummary& tensor : has.tensors)
            if (find(lacks, tensor.name) == nullptr)
                return fmt::format("{} has a tensor {}, and {} has none", name_of(has.split), tensor.name,
                                   name_of(lacks.split));
        return "";
    };
    if (const std::string text = missing(a, b); !text.empty()) return text;
    if (const std::string text = missing(b, a); !text.empty()) return text;
    for (const TensorSummary& one : a.tensors) {
        const TensorSummary& other = *find(b, one.name);
        if (one.dtype != other.dtype)
            return fmt::format("{} is {} in {} and {} in {}", one.name, name_of(one.dtype), name_of(a.split),
                               name_of(other.dtype), name_of(b.split));
        if (!one.varies && !other.varies && !(one.shape == other.shape))
            return fmt::format("a sample's {} is {} in {} and {} in {}", one.name, one.shape.str(), name_of(a.split),
                               other.shape.str(), name_of(b.split));
    }
    return "";
}

// The first label that is none of `classes`; "" where there is none. Rows with PyTorch's label for "ignore" do not
// count in a loss.
std::string label_beyond(const DataCheck& data, std::int64_t classes) {
    for (const TensorSummary& tensor : data.tensors)
        for (const auto& [value, label] : tensor.labels)
            if ((value < 0 || value >= classes) && value != ops::ClassLossOptions{}.ignore_index)
                return fmt::format("{} of sample {} of {} is {}, which is none of the {} classes 0 to {}", tensor.name,
                                   label.first, name_of(data.split), value, classes, classes - 1);
    return "";
}

// A label of the test data that training never sees; "" where there is none, or where not all of it was read.
std::string unseen_label(const DataCheck& train, const DataCheck& test) {
    if (train.read < train.samples) return "";
    for (const TensorSummary& tensor : test.tensors) {
        const TensorSummary* const seen = find(train, tensor.name);
        if (seen == nullptr || seen->labels.empty()) continue;
        for (const auto& [value, label] : tensor.labels)
            if (!seen->labels.contains(value))
                return fmt::format("{} of sample {} of {} is {}, which {} does not have", tensor.name, label.first,
                                   name_of(test.split), value, name_of(train.split));
    }
    return "";
}

}  // namespace

ShapeCheck check_shapes(const Task& task, const Config& config, std::span<const DataCheck> data) {
    ShapeCheck result;
    const auto fails = [&](const std::string& why) {
        if (why.empty()) return false;
        result.mark = Mark::fail;
        result.text = why;
        return true;
    };
    for (const DataCheck& each : data)
        if (each.tensors.empty() && fails(fmt::format("{} could not be read", name_of(each.split)))) return result;
    if (fails(difference_of(data[0], data[1]))) return result;
    const std::shared_ptr<const Dataset> train = task.data(Split::train);
    const std::int64_t outputs = train->info().outputs;
    for (const DataCheck& each : data)
        if (outputs > 1 && fails(label_beyond(each, outputs))) return result;

    const std::unique_ptr<Module> model = make_initial_model(task, config);
    const WithoutOverrides plain(*model);
    const Batch batch = train->read(spread_samples(*train, kSamples));
    {
        OutputWatcher watcher(result);
        const WatchScope watch(&watcher);
        const LossFunction loss = [&](Module& m, const Batch& b) { return task.loss(m, b); };
        const NoGrad no_grad;
        forward_backward(loss, *model, kFullPrecision, {&batch, 1}, [&](const Tensor& l) { result.loss = l.item(); });
    }
    if (!std::isfinite(result.loss) &&
        fails(fmt::format("the loss of {} samples is {}", batch.size,
                          std::isnan(result.loss) ? std::abs(result.loss) : result.loss)))
        return result;
    for (const DataCheck& each : data)
        if (result.classes > 0 && fails(label_beyond(each, result.classes))) return result;
    const std::shared_ptr<const Dataset> test = task.data(Split::test);
    {
        const NoGrad no_grad;
        const Autocast cast(kFullPrecision);
        model->eval();
        MetricSums sums(task.metrics());
        sums.add(task.measure(*model, test->read(spread_samples(*test, kSamples))));
    }

    result.text = fmt::format("the splits agree, the model makes {} of {} samples, their loss is {:.4g}",
                              result.output.str(), batch.size, result.loss);
    const bool more = result.classes > 0 && outputs > 0 && result.classes != outputs;
    const std::string unseen = unseen_label(data[0], data[1]);
    if (!more && unseen.empty()) return result;
    result.mark = Mark::warn;
    result.text =
        more ? fmt::format("the loss tells {} classes apart, and the data have {}", result.classes, outputs) : unseen;
    return result;
}

}  // namespace invar
