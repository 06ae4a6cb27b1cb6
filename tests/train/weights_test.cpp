// Files of weights held against a model: what fits is read, and what does not is named before anything is.
#include "invar/train/weights.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/core/promised.h"
#include "invar/io/checkpoint.h"
#include "invar/io/safetensors.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

// Knows the names of a file that says `old.` before each name, keeps a counter, and has its weight twice.
class Pair : public Module {
  public:
    Linear& first = add<Linear>("first", 3, 2);
    BatchNorm& norm = add<BatchNorm>("norm", 2);
    Tensor forward(const Tensor& x) override { return first(x); }
    std::string own_name(const std::string& in_file) const override {
        if (in_file == "counter") return "";
        if (in_file == "copy.weight") return "first.weight";
        return in_file.starts_with("old.") ? in_file.substr(4) : in_file;
    }
};

class Weights : public ::testing::Test {
  protected:
    Weights() {
        for (auto& [name, tensor] : model_.state_dict()) tensors_[name] = tensor;
        tensors_["first.weight"] = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
    }
    void load() {
        save_safetensors(file_, tensors_);
        load_weights(model_, file_);
    }
    void load_but(const std::vector<std::string>& fresh) {
        save_safetensors(file_, tensors_);
        load_weights(model_, file_, &fresh);
    }
    std::vector<float> weight() { return model_.first.weight.value.to_vector<float>(); }

    const ScratchFolder scratch_;
    const std::filesystem::path file_ = scratch_.path() / "w.safetensors";
    Pair model_;
    TensorMap tensors_;
};

TEST_F(Weights, AreReadByTheNamesThatTheModelKnows) {
    const TensorMap plain = std::exchange(tensors_, {});
    for (const auto& [name, tensor] : plain) tensors_["old." + name] = tensor;
    tensors_["counter"] = Tensor::from(std::vector<std::int64_t>{7}, {1});
    load();
    EXPECT_EQ(weight(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Weights, AreReadFromAnyFloatingDtype) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f64}) {
        tensors_["first.weight"] =
            ops::cast(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, float(int(dtype)) + 1}, {2, 3}), dtype);
        load();
        EXPECT_EQ(weight(), (std::vector<float>{1, 2, 3, 4, 5, float(int(dtype)) + 1}));
    }
}

TEST_F(Weights, ThatDoNotFitAreAllNamedAndNoneIsRead) {
    const std::vector<float> before = weight();
    tensors_.erase("first.bias");
    tensors_.erase("norm.weight");
    tensors_["tail"] = ops::ones({4});
    tensors_["norm.bias"] = ops::ones({3});
    tensors_["norm.running_mean"] = Tensor::from(std::vector<std::int64_t>{1, 2}, {2});
    EXPECT_ERROR(load(), Error,
                 "w.safetensors: these weights are of another model: missing first.bias, norm.weight; unexpected "
                 "\"tail\" of shape [4] (16 bytes); norm.bias is [3] and should be [2]; norm.running_mean is of i64");
    EXPECT_EQ(weight(), before);
}

TEST_F(Weights, OfModulesThatBeginFreshAreNotReadNorMissed) {
    const std::vector<float> bias = model_.first.bias->value.to_vector<float>();
    tensors_["first.bias"] = ops::full({5}, 9);  // of another number of outputs
    tensors_.erase("norm.weight");
    load_but({"norm", "*.bias"});
    EXPECT_EQ(weight(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(model_.first.bias->value.to_vector<float>(), bias);
    EXPECT_ERROR(load_but({"norm"}), Error,
                 "first.bias is [5] and should be [2]; init_fresh=[first.bias] begins with fresh");
    EXPECT_ERROR(load_but({}), Error, "init_fresh=[first.bias,norm.weight] begins with fresh ones there");
    tensors_["tail"] = ops::ones({4});
    EXPECT_ERROR(load_but({"norm", "first"}), Error, "unexpected \"tail\"");
}

TEST_F(Weights, OfAModuleThatIsNotThereCannotBeginFresh) {
    EXPECT_ERROR(load_but({"norm", "fisrt"}), UsageError, "init_fresh: the model has no 'fisrt'; it has first, norm");
}

// So that of a large model each rank reads what it keeps, and never has all of it.
TEST_F(Weights, OfAModelThatNobodyHasReadYetAreReadWhenSomebodyDoes) {
    save_safetensors(file_, {{"weight", ops::full({256, 512}, 7)}, {"bias", ops::ones({256})}});
    const auto model = [] {
        const DeferDraws deferred;
        return std::make_unique<Linear>(512, 256);
    }();
    ASSERT_TRUE(is_deferred(model->weight.value));
    load_weights(*model, file_);
    EXPECT_TRUE(is_deferred(model->weight.value));
    EXPECT_EQ(model->weight.value.to_vector<float>(), std::vector<float>(256 * 512, 7));
}

TEST_F(Weights, OfAnotherModelAltogetherAreNoReasonToBeginFresh) {
    for (auto& [name, tensor] : tensors_) tensor = ops::ones({7});
    try {
        load_but({});
        FAIL() << "nothing fits";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find("init_fresh"), std::string::npos) << error.what();
    }
}

TEST_F(Weights, OfOldFilesDoNotCountTheBatchesOfANorm) {
    tensors_.erase("norm.num_batches_tracked");
    load();
    EXPECT_EQ(weight()[5], 6);
}

// Of a checkpoint the model's alone, the averaged ones where there are some; of a run those of its last checkpoint.
TEST_F(Weights, AreReadFromCheckpointsAndRuns) {
    Checkpoint checkpoint;
    for (const auto& [name, tensor] : tensors_) checkpoint.tensors["model." + name] = tensor;
    checkpoint.tensors["optimizer.exp_avg.first.weight"] = ops::ones({2, 3});
    save_checkpoint(file_, checkpoint);
    load_weights(model_, file_);
    EXPECT_EQ(weight()[5], 6);

    const std::filesystem::path run = scratch_.path() / "run";
    const CheckpointFolder folder(run / "checkpoints", 5);
    folder.save(1, checkpoint);
    checkpoint.tensors["ema.first.weight"] = ops::full({2, 3}, 7);
    folder.save(2, checkpoint);
    load_weights(model_, run);
    EXPECT_EQ(weight()[5], 7);
    EXPECT_EQ(model_.norm.weight->value.to_vector<float>(), tensors_["norm.weight"].to_vector<float>());

    checkpoint.tensors.erase("model.first.bias");
    save_checkpoint(file_, checkpoint);
    EXPECT_ERROR(load_weights(model_, file_), Error, "these weights are of another model: missing first.bias");
}

TEST_F(Weights, ThatStandTwiceInAFileMustBeTheSame) {
    tensors_["copy.weight"] = tensors_["first.weight"];
    load();
    EXPECT_EQ(weight()[5], 6);
    tensors_["copy.weight"] = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 7}, {2, 3});
    EXPECT_ERROR(load(), Error, "\"copy.weight\" and \"first.weight\" differ");
}

}  // namespace
}  // namespace invar
