// LeNet-5 with ReLU and max pooling, as it is usually written today: conv 6, pool, conv 16, pool, 120, 84, classes.
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

struct LeNetOptions {
    double dropout = 0.0;
};

class LeNet : public Module {
  public:
    LeNet(const LeNetOptions& options, const ImageShape& image, std::int64_t classes)
        : pooled_{(image.height / 2 - 4) / 2, (image.width / 2 - 4) / 2, 16},
          conv1_(add<Conv2d>("conv1", image.channels, 6, 5, ops::Conv2dOptions{.padding = 2})),
          conv2_(add<Conv2d>("conv2", 6, 16, 5)),
          fc1_(add<Linear>("fc1", pooled_.height * pooled_.width * 16, 120, true, pooled_, Activation::relu)),
          dropout_(add<Dropout>("dropout", options.dropout)),
          fc2_(add<Linear>("fc2", 120, 84, true, ImageShape{}, Activation::relu)),
          fc3_(add<Linear>("fc3", 84, classes)) {}

    Tensor forward(const Tensor& x) override {
        constexpr int kHalf = 2;
        Tensor y = ops::max_pool2d(conv1_(x), {.kernel = kHalf, .activation = Activation::relu});
        y = ops::max_pool2d(conv2_(y), {.kernel = kHalf, .activation = Activation::relu});
        return fc3_(fc2_(dropout_(fc1_(ops::flatten(y, 1)))));
    }

  private:
    ImageShape pooled_;
    Conv2d &conv1_, &conv2_;
    Linear& fc1_;
    Dropout& dropout_;
    Linear &fc2_, &fc3_;
};

std::unique_ptr<Module> make_lenet(const LeNetOptions& options, const DataInfo& data) {
    const ImageShape image = image_shape("lenet", data);
    check<UsageError>(image.height >= 12 && image.width >= 12, "model lenet needs images of at least 12x12, not {}x{}",
                      image.height, image.width);
    return std::make_unique<LeNet>(options, image, data.outputs);
}

const RegisterModel<LeNetOptions> kLeNet{
    "lenet",
    "LeNet-5 with ReLU and max pooling.",
    make_lenet,
    {key("dropout", &LeNetOptions::dropout, below(0, 1), "Dropout probability behind the first linear layer.")}};

}  // namespace

}  // namespace invar
