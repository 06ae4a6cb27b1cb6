// Fully connected layers with ReLU between them: 784-512-10 unless told otherwise. Names are those of
// nn.Sequential(Flatten, Linear, ReLU, ..., Linear): "1.weight", "3.weight".
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"

namespace invar {

std::unique_ptr<Module> make_mlp(const MlpOptions& options, const DataInfo& data) {
    auto model = std::make_unique<Sequential>();
    model->then(std::make_unique<Flatten>());
    std::int64_t in = data.input.numel();
    ImageShape image = data.input.rank() == 3 ? image_shape("mlp", data) : ImageShape{};
    for (const std::int64_t width : options.hidden) {
        check<UsageError>(width > 0, "model.hidden: a layer of width {} cannot be", width);
        model->then(std::make_unique<Linear>(in, width, true, image, Activation::relu));
        model->then(std::make_unique<Identity>());  // where nn.Sequential has its ReLU
        if (options.dropout > 0) model->then(std::make_unique<Dropout>(options.dropout));
        in = width;
        image = {};
    }
    model->then(std::make_unique<Linear>(in, outputs_for(options.classes, data), true, image));
    return model;
}

namespace {

const RegisterModel<MlpOptions> kMlp{
    "mlp",
    "Fully connected layers with ReLU between them.",
    make_mlp,
    {key("hidden", &MlpOptions::hidden, within(1, 1 << 20), "Widths of the hidden layers; [] for none."),
     key("classes", &MlpOptions::classes, within(0, 1 << 20), "Outputs; 0 for as many as the data have."),
     key("dropout", &MlpOptions::dropout,
         custom("from 0 to below 1, or -1", [](double v) { return v == -1 || (v >= 0 && v < 1); }),
         "Dropout probability behind each hidden layer; -1 and 0 for none.")}};

}  // namespace

}  // namespace invar
