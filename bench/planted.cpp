// Faults of code and data, each in one of four small networks, as a plug-in: judgement.py draws them and tallies what
// `invar diagnose` says. Nothing but this file knows what was planted.
#include <limits>

#include "invar/data/synthetic.h"
#include "invar/invar.h"
#include "invar/plugin.h"

using namespace invar;

namespace {

struct Options {
    std::string arch = "mlp";
    std::string fault = "none";
    std::int64_t width = 32, depth = 3;
    std::int64_t at = 1;    // the stage behind which the fault sits
    double strength = 1.0;  // of the fault
};

// Gradients by a factor.
struct Steep {
    static constexpr const char* kName = "steep";
    static constexpr CastClass kCast = CastClass::keep;
    double factor;
    Tensor forward(Context&, const Tensors& in) { return in[0] * 1.0; }
    Tensors backward(Context&, const Tensor& gradient) { return {gradient * factor}; }
};

// Gradients to a norm, as a hook would that does not know of the loss scale.
struct ClippedGradient {
    static constexpr const char* kName = "clipped_gradient";
    static constexpr CastClass kCast = CastClass::keep;
    double limit;
    Tensor forward(Context&, const Tensors& in) { return in[0] * 1.0; }
    Tensors backward(Context&, const Tensor& gradient) {
        double squares = 0.0;
        for (const double g : gradient.to_vector<double>()) squares += g * g;
        return {gradient * std::min(1.0, limit / std::sqrt(squares + 1e-30))};
    }
};

// Where a fault sits: passes on what it is given, but for the fault.
struct Site : Module {
    Site(std::string fault, double strength, std::int64_t width) : fault(std::move(fault)), strength(strength) {
        const bool bf16 = this->fault == "average_bf16";
        if (bf16 || this->fault == "average_f16")
            running = &add_buffer("running_mean", ops::zeros({width}, bf16 ? Dtype::bf16 : Dtype::f16));
    }
    Tensor forward(const Tensor& x) override {
        if (fault == "area") {  // of boxes, as an IoU takes it
            const Tensor side = ops::abs(x) * strength + strength;
            const Tensor area = side * side;
            return x * (area / (area + 1.0));
        }
        if (fault == "variance") {  // the mean of squares less the square of the mean
            const Tensor large = x * strength;
            const Tensor mean = ops::mean(large, {-1}, true);
            const Tensor variance = ops::mean(large * large, {-1}, true) - mean * mean;
            return large * ops::rsqrt(variance + 1.0);
        }
        if (fault == "offset") return (x + strength) - strength;
        if (fault == "half_by_hand") {
            const Tensor small = ops::cast(x * strength, Dtype::f16);
            return x * ops::cast(ops::rsqrt(ops::mean(small * small, {-1}, true) * (1 / strength / strength) + 1.0),
                                 x.dtype());
        }
        if (fault == "norm_clip") {
            const Tensor large = x * strength;
            const Tensor norm = ops::sqrt(ops::sum(large * large, {-1}, true));
            return x * ops::pow(norm * (0.1 / strength) + 1.0, -1.0);
        }
        if (fault == "vanish") return apply(Steep{1 / strength}, {apply(Steep{strength}, {x})});
        if (fault == "dead") return ops::relu(x - strength);
        if (fault == "detach") return x.detach();
        if (fault == "eval_dropout") return ops::dropout(x, strength, true);
        if (fault == "hook_clip") return apply(ClippedGradient{strength}, {x});
        if (running != nullptr && training()) {
            const NoGrad no_grad;
            std::vector<int> all_but_last;
            for (int i = 0; i + 1 < x.rank(); ++i) all_but_last.push_back(i);
            const Tensor mean = ops::mean(x.detach(), all_but_last);
            *running = ops::cast(*running * strength + mean * (1 - strength), running->dtype());
        }
        return x;
    }
    std::string fault;
    double strength;
    Tensor* running = nullptr;
};

struct Stage : Module {
    Stage(const std::string& arch, std::int64_t in, std::int64_t width, bool first) : arch(arch), first(first) {
        const ops::Conv2dOptions same{.padding = 1};
        if (arch == "mlp") fc = &add<Linear>("fc", in, width);
        if (arch == "convnet" || (arch == "resnet" && first)) conv1 = &add<Conv2d>("conv1", in, width, 3, same);
        if (arch == "resnet" && !first) {
            conv1 = &add<Conv2d>("conv1", width, width, 3, same, false);
            norm1 = &add<BatchNorm>("norm1", width);
            conv2 = &add<Conv2d>("conv2", width, width, 3, same, false);
            norm2 = &add<BatchNorm>("norm2", width);
        }
        if (arch == "transformer" && first) fc = &add<Linear>("fc", in, width);
        if (arch == "transformer" && !first) {
            before = &add<LayerNorm>("before", width);
            qkv = &add<Linear>("qkv", width, 3 * width);
            out = &add<Linear>("out", width, width);
            behind = &add<LayerNorm>("behind", width);
            up = &add<Linear>("up", width, 2 * width);
            down = &add<Linear>("down", 2 * width, width);
        }
    }
    Tensor forward(const Tensor& x) override {
        if (arch == "mlp") return ops::relu((*fc)(x));
        if (arch == "convnet" || (first && conv1 != nullptr)) return ops::relu((*conv1)(x));
        if (arch == "resnet") return ops::relu(x + (*norm2)((*conv2)(ops::relu((*norm1)((*conv1)(x))))));
        if (first) return (*fc)(x);
        const Tensor y = x + (*out)(ops::self_attention((*qkv)((*before)(x)), 2, 2));
        return y + (*down)(ops::gelu((*up)((*behind)(y))));
    }
    std::string arch;
    bool first;
    Linear *fc = nullptr, *qkv = nullptr, *out = nullptr, *up = nullptr, *down = nullptr;
    Conv2d *conv1 = nullptr, *conv2 = nullptr;
    BatchNorm *norm1 = nullptr, *norm2 = nullptr;
    LayerNorm *before = nullptr, *behind = nullptr;
};

struct Planted : Module {
    Planted(const Options& o, const DataInfo& data) : o(o) {
        const std::int64_t in = o.arch == "mlp"           ? data.input.numel()
                                : o.arch == "transformer" ? data.input[1] * data.input[2]
                                                          : data.input[2];
        for (std::int64_t i = 0; i < o.depth; ++i)
            stages.push_back(
                &add<Stage>("stage" + std::to_string(i + 1), o.arch, i == 0 ? in : o.width, o.width, i == 0));
        if (o.fault == "frozen") stages.at(std::size_t(o.at - 1))->freeze("*");
        if (o.fault != "none" && o.fault != "frozen") site = &add<Site>("site", o.fault, o.strength, o.width);
        head = &add<Linear>("head", o.width, data.outputs);
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = o.arch == "mlp" ? ops::flatten(x, 1) : o.arch == "transformer" ? ops::flatten(x, 2) : x;
        for (std::size_t i = 0; i < stages.size(); ++i) {
            y = (*stages[i])(y);
            if (site != nullptr && std::int64_t(i) + 1 == o.at) y = (*site)(y);
        }
        if (o.arch == "convnet" || o.arch == "resnet") y = ops::mean(y, {1, 2});
        if (o.arch == "transformer") y = ops::mean(y, {1});
        return (*head)(y);
    }
    Options o;
    std::vector<Stage*> stages;
    Site* site = nullptr;
    Linear* head = nullptr;
};

const RegisterModel<Options> kModel{
    "planted",
    "A small network with a fault behind one of its stages.",
    [](const Options& o, const DataInfo& data) {
        check<UsageError>(o.at <= o.depth, "model.at={} is behind the last of {} stages", o.at, o.depth);
        return std::make_unique<Planted>(o, data);
    },
    {key("arch", &Options::arch, one_of({"mlp", "convnet", "resnet", "transformer"}), "What the stages are."),
     key("fault", &Options::fault,
         one_of({"none", "area", "variance", "offset", "half_by_hand", "norm_clip", "vanish", "dead", "detach",
                 "frozen", "eval_dropout", "hook_clip", "average_f16", "average_bf16"}),
         "What is wrong."),
     key("width", &Options::width, within(2, 4096), "Channels, even."),
     key("depth", &Options::depth, within(1, 64), "Stages."),
     key("at", &Options::at, within(1, 64), "The stage behind which the fault sits."),
     key("strength", &Options::strength, above(0), "Of the fault: a factor, a share or a limit.")}};

struct DataOptions {
    std::int64_t size = 192, height = 16, width = 16;
    std::string fault = "none";
    std::int64_t every = 100;  // of how many samples one has NaN
};

struct PlantedData : Dataset {
    PlantedData(const DataOptions& o, Split split, std::uint64_t seed)
        : o(o), split(split), made({.size = o.size, .height = o.height, .width = o.width}, split, seed) {}
    std::string name() const override { return "planted"; }
    std::int64_t size() const override { return made.size(); }
    DataInfo info() const override { return made.info(); }
    Batch read(std::span<const std::int64_t> indices) const override {
        const Batch batch = made.read(indices);
        const std::int64_t each = batch["x"].numel() / std::max<std::int64_t>(1, batch.size);
        for (std::size_t i = 0; i < indices.size(); ++i) {
            if (o.fault == "nan" && split == Split::train && indices[i] % o.every == o.every / 2)
                batch["x"].data<float>()[std::int64_t(i) * each + 7 % each] = std::numeric_limits<float>::quiet_NaN();
            if (o.fault == "constant_labels") batch["y"].data<std::int64_t>()[i] = o.every % made.info().outputs;
        }
        return batch;
    }
    DataOptions o;
    Split split;
    SyntheticDataset made;
};

const RegisterData<DataOptions> kData{
    "planted",
    "Made-up images, with a fault.",
    [](const DataOptions& o, Split split, std::uint64_t seed) { return std::make_shared<PlantedData>(o, split, seed); },
    {key("fault", &DataOptions::fault, one_of({"none", "nan", "constant_labels"}), "What is wrong."),
     key("every", &DataOptions::every, within(1, 1e6), "One of so many samples has NaN; or the label of all."),
     key("size", &DataOptions::size, within(10, 1e6), "Samples to train on."),
     key("height", &DataOptions::height, within(1, 512), "Rows."),
     key("width", &DataOptions::width, within(1, 512), "Columns.")}};

struct TaskOptions {
    std::string fault = "none";
    double factor = 1.0;
};

struct PlantedTask : Classification {
    PlantedTask(const TaskParts& parts, const TaskOptions& o) : Classification(parts), o(o) {}
    Tensor loss(Module& model, const Batch& batch) const override {
        const Tensor logits = model(batch["x"]);
        const Tensor mean = ops::cross_entropy(logits, batch["y"]);
        if (o.fault == "sum") return mean * double(batch.size);
        if (o.fault == "fixed") return mean * (double(batch.size) / o.factor);
        if (o.fault == "factor") return mean * o.factor;
        if (o.fault == "penalty") {  // of large logits, as a square
            const Tensor large = (ops::abs(logits) + 1.0) * o.factor;
            return mean + ops::mean(large * large) * (1e-3 / o.factor / o.factor);
        }
        return mean;
    }
    TaskOptions o;
};

const RegisterTask<TaskOptions> kTask{
    "planted",
    "Classification with a fault in its loss.",
    [](const TaskOptions& o, const TaskParts& parts) { return std::make_shared<PlantedTask>(parts, o); },
    {key("fault", &TaskOptions::fault, one_of({"none", "sum", "fixed", "factor", "penalty"}), "What is wrong."),
     key("factor", &TaskOptions::factor, above(0), "Of the fault.")}};

struct NoOptions {};
const RegisterCurve<NoOptions> kZero{"planted_zero", "A factor that stays at 0.",
                                     [](const NoOptions&, std::int64_t, std::int64_t) { return 0.0; }};

}  // namespace

INVAR_PLUGIN {}
