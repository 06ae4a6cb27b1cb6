// Fully connected layers with ReLU between them: 784-512-10 unless told otherwise. Names are those of
// nn.Sequential(Flatten, Linear, ReLU, ..., Linear): "1.weight", "3.weight".
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/nn/layers.h"

namespace invar {

std::unique_ptr<Module> make_mlp(const ModelOptions& options) {
    auto model = std::make_unique<Sequential>();
    model->then(std::make_unique<Flatten>());
    std::int64_t in = options.height * options.width * options.channels;
    ImageShape image{options.height, options.width, options.channels};
    for (const std::int64_t width : options.hidden) {
        check<UsageError>(width > 0, "model.hidden: a layer of width {} cannot be", width);
        model->then(std::make_unique<Linear>(in, width, true, image, Activation::relu));
        model->then(std::make_unique<Identity>());  // where nn.Sequential has its ReLU
        if (options.dropout > 0) model->then(std::make_unique<Dropout>(options.dropout));
        in = width;
        image = {};
    }
    model->then(std::make_unique<Linear>(in, options.classes, true, image));
    return model;
}

}  // namespace invar
