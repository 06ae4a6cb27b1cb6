#include "invar/models/models.h"

#include "invar/core/error.h"
#include "invar/ops/ops.h"

namespace invar {

std::int64_t outputs_for(std::int64_t classes, const DataInfo& data) {
    check<UsageError>(classes == 0 || classes >= data.outputs,
                      "model.classes = {}: the data has {} classes; use at least that, or leave it out", classes,
                      data.outputs);
    return classes == 0 ? data.outputs : classes;
}

ImageShape image_shape(const char* model, const DataInfo& data) {
    check<UsageError>(data.input.rank() == 3, "model {} takes images [height, width, channels], not samples of {}",
                      model, data.input.str());
    return {data.input[0], data.input[1], data.input[2]};
}

void draw_normal(Parameter& weight, double deviation) {
    const PurposeScope purpose(Purpose::weights);
    weight.value = ops::normal(weight.value.shape(), 0, deviation).set_requires_grad();
}

void draw_normal(Linear& layer, double deviation) {
    draw_normal(layer.weight, deviation);
    if (layer.bias != nullptr) ops::copy_(layer.bias->value.detach(), Tensor::scalar(0));
}

}  // namespace invar
