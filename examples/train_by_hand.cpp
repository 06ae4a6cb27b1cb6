// The training loop that people know from PyTorch's AMP, line by line, in C++: autocast, scale, unscale, clip, step,
// update. usage: train_by_hand [precision]        (32-true, 16-mixed, bf16-mixed ...; default 16-mixed)
#include <cstdio>

#include "invar/invar.h"

using namespace invar;

namespace {

// A network is a Module: layers are members, forward is ordinary C++.
class Net : public Module {
  public:
    Tensor forward(const Tensor& x) override {
        Tensor y = ops::relu(hidden_(ops::flatten(x, 1)));
        return out_(dropout_(y));
    }

  private:
    Linear& hidden_ = add<Linear>("hidden", 28 * 28, 128);
    Dropout& dropout_ = add<Dropout>("dropout", 0.1);
    Linear& out_ = add<Linear>("out", 128, 10);
};

int run(const Precision& precision) {
    const SyntheticOptions options{.size = 4096};
    const Classification task({std::make_shared<SyntheticDataset>(options, Split::train),
                               std::make_shared<SyntheticDataset>(options, Split::test),
                               [](const DataInfo&) { return std::make_unique<Net>(); }});
    Loader data(task.data(Split::train), {.batch_size = 64});
    Loader test(task.data(Split::test), {.batch_size = 64, .shuffle = false});

    const std::unique_ptr<Module> made = task.make_model();
    Module& model = *made;
    Optimizer optimizer(model, {.kind = OptimizerSpec::Kind::adamw, .lr = 1e-3},
                        StoreOptions::for_precision(precision));
    GradScaler scaler({.init_scale = 65536, .spec = {.enabled = precision.needs_scaler()}});

    for (int epoch = 0; epoch < 2; ++epoch) {
        data.start_epoch(epoch);
        double loss_sum = 0;
        while (std::optional<Batch> batch = data.next()) {
            optimizer.zero_grad();
            Tensor loss;
            {
                Autocast cast(precision);
                loss = task.loss(model, *batch);
            }
            backward(scaler.scale(loss));
            scaler.unscale(optimizer);
            clip_grad_norm(optimizer, 1.0);
            scaler.step(optimizer);  // skipped, weights untouched, if a gradient overflowed
            scaler.update();
            loss_sum += loss.item();
        }
        const Evaluation result = evaluate(task, model, test, precision);
        std::printf("epoch %d  loss %.4f  test accuracy %.2f%%  scale %g  skipped %lld\n", epoch + 1,
                    loss_sum / double(data.batches_per_epoch()), 100 * result.at("accuracy"), scaler.get_scale(),
                    static_cast<long long>(optimizer.state().skipped));
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(Precision::parse(argc > 1 ? argv[1] : "16-mixed"));
    } catch (const Error& error) {
        std::fprintf(stderr, "train_by_hand: %s\n", error.what());
        return 1;
    }
}
