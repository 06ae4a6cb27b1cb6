// The small ConvNet that people start with on MNIST: conv 1-32, conv 32-64, pool, dropout .25, fc 9216-128, dropout .5,
// fc 128-10. Ends in logits; the loss takes the log-softmax itself.
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

class ConvNet : public Module {
  public:
    ConvNet(const ConvNetOptions& o, const ImageShape& image, std::int64_t classes)
        : options_(o),
          image_(image),
          classes_(classes),
          pooled_{(image.height - 4) / 2, (image.width - 4) / 2, 64},
          conv1(add<Conv2d>("conv1", image.channels, 32, 3, ops::Conv2dOptions{.activation = Activation::relu})),
          conv2(add<Conv2d>("conv2", 32, 64, 3)),
          dropout1(add<Dropout>("dropout1", o.dropout < 0 ? 0.25 : o.dropout)),
          dropout2(add<Dropout>("dropout2", o.dropout < 0 ? 0.5 : o.dropout)),
          fc1(add<Linear>("fc1", pooled_.height * pooled_.width * pooled_.channels, 128, true, pooled_,
                          Activation::relu)),
          fc2(add<Linear>("fc2", 128, classes)) {}

    Tensor forward(const Tensor& x) override {
        Tensor y = conv2(conv1(x));
        // ReLU after the pool is the same as before it, on a quarter of the values.
        y = ops::max_pool2d(y, {.kernel = {2, 2}, .activation = Activation::relu});
        y = fc1(ops::flatten(dropout1(y), 1));
        return fc2(dropout2(y));
    }

    std::unique_ptr<Module> new_instance() const override {
        return std::make_unique<ConvNet>(options_, image_, classes_);
    }

  private:
    ConvNetOptions options_;
    ImageShape image_;
    std::int64_t classes_;
    ImageShape pooled_;
    Conv2d &conv1, &conv2;
    Dropout &dropout1, &dropout2;
    Linear &fc1, &fc2;
};

}  // namespace

std::unique_ptr<Module> make_convnet(const ConvNetOptions& options, const DataInfo& data) {
    const ImageShape image = image_shape("convnet", data);
    check<UsageError>(image.height >= 6 && image.width >= 6, "model convnet needs images of at least 6x6, not {}x{}",
                      image.height, image.width);
    return std::make_unique<ConvNet>(options, image, outputs_for(options.classes, data));
}

namespace {

const RegisterModel<ConvNetOptions> kConvNet{
    "convnet",
    "Two 3x3 convolutions (32, 64), pooling, dropout, a layer of 128, dropout.",
    make_convnet,
    {key("classes", &ConvNetOptions::classes, within(0, 1 << 20), "Outputs; 0 for as many as the data have."),
     key("dropout", &ConvNetOptions::dropout,
         custom("from 0 to below 1, or -1", [](double v) { return v == -1 || (v >= 0 && v < 1); }),
         "Dropout probability everywhere; -1 for 0.25 and 0.5, 0 turns both off.")}};

}  // namespace

}  // namespace invar
