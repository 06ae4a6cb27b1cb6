// Selective precision and exchange with PyTorch: a model trained in BF16 with its last layer pinned to FP32, its
// weights written as safetensors under PyTorch's names, read back, and found to give the same answers.
#include <cstdio>
#include <filesystem>

#include "invar/invar.h"

using namespace invar;

int main() {
    try {
        const Precision precision = Precision::parse("bf16-mixed");
        const auto images = std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 512}, Split::train);
        auto model = make_convnet({}, images->info());
        const std::pair<std::string, std::string> overrides[] = {{"fc2", "32-true"}};
        override_precision(*model, overrides);

        Loader data(images, {.batch_size = 32});
        Optimizer optimizer(*model, {.kind = OptimizerSpec::Kind::adam, .lr = 1e-3},
                            StoreOptions::for_precision(precision));
        GradScaler scaler({.spec = {.enabled = false}});  // BF16 has FP32's range: nothing to scale
        data.start_epoch(0);
        Tensor loss;
        while (std::optional<Batch> batch = data.next())
            loss = training_step(cross_entropy_loss, *model, optimizer, scaler, precision, {ClipSpec::Kind::norm, 1.0f},
                                 std::span(&*batch, 1));
        std::printf("trained in %s, last loss %.4f\n", precision.name().c_str(), loss.item());

        const auto file = std::filesystem::temp_directory_path() / "invar_pin_and_share.safetensors";
        save_safetensors(file, model->state_dict());
        auto copy = make_convnet({}, images->info());
        copy->load_state_dict(load_safetensors(file).tensors);
        std::filesystem::remove(file);

        const NoGrad no_grad;
        model->eval(), copy->eval();
        data.start_epoch(1);
        const Batch batch = *data.next();
        const auto mine = (*model)(batch["x"]).to_vector<float>(), theirs = (*copy)(batch["x"]).to_vector<float>();
        std::printf("answers after the round trip: %s\n", mine == theirs ? "identical" : "different");
        return mine == theirs ? 0 : 1;
    } catch (const Error& error) {
        std::fprintf(stderr, "pin_and_share: %s\n", error.what());
        return 1;
    }
}
