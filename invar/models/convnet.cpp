// The small ConvNet that people start with on MNIST: conv 1-32, conv 32-64, pool, dropout .25, fc 9216-128, dropout .5,
// fc 128-10. Ends in logits; the loss takes the log-softmax itself.
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

class ConvNet : public Module {
  public:
    explicit ConvNet(const ModelOptions& o)
        : pooled_{(o.height - 4) / 2, (o.width - 4) / 2, 64},
          conv1(add<Conv2d>("conv1", o.channels, 32, 3, ops::Conv2dOptions{.activation = Activation::relu})),
          conv2(add<Conv2d>("conv2", 32, 64, 3)),
          dropout1(add<Dropout>("dropout1", o.dropout < 0 ? 0.25 : o.dropout)),
          dropout2(add<Dropout>("dropout2", o.dropout < 0 ? 0.5 : o.dropout)),
          fc1(add<Linear>("fc1", pooled_.height * pooled_.width * pooled_.channels, 128, true, pooled_,
                          Activation::relu)),
          fc2(add<Linear>("fc2", 128, o.classes)) {}

    Tensor forward(const Tensor& x) override {
        Tensor y = conv2(conv1(x));
        // ReLU after the pool is the same as before it, on a quarter of the values.
        y = ops::max_pool2d(y, {.kernel = {2, 2}, .activation = Activation::relu});
        y = fc1(ops::flatten(dropout1(y), 1));
        return fc2(dropout2(y));
    }

  private:
    ImageShape pooled_;
    Conv2d &conv1, &conv2;
    Dropout &dropout1, &dropout2;
    Linear &fc1, &fc2;
};

}  // namespace

std::unique_ptr<Module> make_convnet(const ModelOptions& options) {
    check<UsageError>(options.height >= 6 && options.width >= 6,
                      "model convnet needs images of at least 6x6, not {}x{}", options.height, options.width);
    return std::make_unique<ConvNet>(options);
}

}  // namespace invar
