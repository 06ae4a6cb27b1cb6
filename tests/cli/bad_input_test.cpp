// Whatever is wrong with the input: one line that says what and what to do, and the right exit code.
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class BadInput : public CliTest {
  protected:
    void refuses(const Words& words, int code, const Words& parts) {
        const Result result = invar(words);
        const std::string message = result.error();
        EXPECT_EQ(result.code, code) << message;
        for (const std::string& part : parts)
            EXPECT_TRUE(has(message, part)) << "'" << part << "' is missing in: " << message;
    }
};

TEST_F(BadInput, UnknownCommandNamesTheNearest) {
    refuses({"trian"}, 2, {"unknown command 'trian'", "did you mean 'train'?"});
    refuses({"frobnicate"}, 2, {"unknown command", "formats"});
}

TEST_F(BadInput, UnknownOptionNamesTheNearest) {
    refuses({"train", "--batch-size", "8"}, 2, {"--batch-size", "did you mean '--batch_size'?", "invar train --help"});
    refuses({"--versoin"}, 2, {"did you mean '--version'?"});
    refuses({"train", "--device"}, 2, {"--device"});
    refuses({"formats", "extra"}, 2, {"'extra' was not expected"});
}

TEST_F(BadInput, OptionsOfOtherToolsNameTheKeyToSet) {
    const Words more[] = {{"--epochs", "3"}, {"--max-epochs=3"}, {"--max_epochs", "3"}, {"--num_train_epochs", "3"}};
    for (const Words& words : more) refuses(small(words), 2, {"unknown option", "write trainer.max_epochs=3;"});
    refuses(small({"--lr", "1e-3"}), 2, {"write optimizer.lr=1e-3;"});
    refuses(small({"--lr", "--quiet"}), 2, {"write optimizer.lr=VALUE;"});
    refuses(small({"--batch-size", "8"}, {"validate"}), 2, {"write data.batch_size=8;", "invar validate --help"});
    refuses(small({"--gpus", "2"}), 2, {"use trainer.device=cpu, cuda or cuda:N"});
    refuses(small({"--fp16"}), 2, {"use trainer.precision=16-mixed"});
    refuses(small({"--optimizer", "adamw"}), 2, {"write optimizer=adamw;"});
    refuses(small({"--no-such-thing", "1"}), 2, {"unknown option '--no-such-thing'; see invar train --help"});
}

TEST_F(BadInput, UnknownKeyNamesTheNearest) {
    refuses(small({"trainer.max_epoch=3"}), 2, {"trainer.max_epoch", "did you mean 'trainer.max_epochs'?"});
    refuses(small({"trainer=fp16_saef"}), 2, {"fp16_saef", "did you mean 'fp16_safe'?"});
    refuses(small({"~trainer.max_steps"}), 2, {"'~trainer.max_steps' takes back nothing"});
    refuses(small({"trainer.precision_overrides={0:bf16}"}), 2,
            {"trainer.precision_overrides.0:bf16", "write a space after the colon"});
    refuses(small({"~trainer.max_epoch"}), 2, {"trainer.max_epoch", "did you mean 'trainer.max_epochs'?"});
}

TEST_F(BadInput, MissingConfiguration) {
    refuses({"train", "nofile.yaml"}, 2, {"nofile.yaml"});
    refuses({"train", "nosuch"}, 2, {"no experiment 'nosuch'", "synthetic"});
    refuses({"train", "one", "two"}, 2, {"'one'", "'two'", "key=value"});
}

// 1 is for bad news that a command was asked for, or a run that failed.
TEST_F(BadInput, AMissingFileEndsEveryCommandWithTwo) {
    for (const Words& words :
         {Words{"train", "none.yaml"}, small({"init_from=none"}), Words{"train", "--resume", "none"},
          Words{"validate", "none.yaml"}, small({"init_from=none"}, {"validate"}), Words{"compare", "none", "none"},
          Words{"inspect", "none"}, Words{"diagnose", "none.yaml"}, small({"init_from=none"}, {"diagnose"}),
          Words{"tune", "none.yaml"}, small({"init_from=none"}, {"tune"}), Words{"eval", "none"},
          Words{"bench", "none.yaml"}, small({"init_from=none"}, {"bench"}),
          Words{"init", "none.yaml", "w.safetensors"}, small({"init_from=none", "w.safetensors"}, {"init"}),
          Words{"eval", "none.safetensors", "synthetic"}})
        refuses(words, 2, {"none"});
}

// As a variable of a script that is not set gives them.
TEST_F(BadInput, EmptyValues) {
    refuses({"train", "--resume", ""}, 2, {"--resume has no value"});
    refuses(small({"--device", ""}), 2, {"--device has no value"});
    refuses(small({"optimizer.lr="}), 2, {"'optimizer.lr=' gives no value", "~optimizer.lr", "optimizer.lr=null"});
}

TEST_F(BadInput, MissingDataSetShowsTheWayOut) {
    refuses({"train", "data=cifar10", "data.root=nowhere"}, 2, {"cifar10", "nowhere", "https://", "data=synthetic"});
}

TEST_F(BadInput, ValuesOutsideTheirRange) {
    refuses(small({"trainer.precision=fp17"}), 2, {"fp17", "fp16", "bf16-mixed"});
    refuses(small({"--mixed_precision", "fp17"}), 2, {"fp17"});
    refuses(small({"--amp_opt_level", "O7"}), 2, {"O7", "O1"});
    refuses(small({"trainer.gradient_clip_val=-1"}), 2, {"gradient_clip_val", "at least 0"});
    refuses(small({"--threads", "many"}), 2, {"threads", "integer"});
    refuses(small({"data.batch_size=100000", "data.drop_last=true"}), 2, {"100000", "160 samples"});
}

TEST_F(BadInput, PrecisionsAndDevicesThatAreNotHere) {
    for (const char* device : {"cpu", "cuda", "auto"})
        refuses(small({"--mixed_precision", "fp8", "--device", device}), 2, {"not train in FP8", "bf16-mixed"});
    refuses(small({"--candidates", "fp8"}, {"validate"}), 2, {"not train in FP8"});
    refuses(small({"--precisions", "fp8"}, {"bench"}), 2, {"not train in FP8"});
    refuses(small({"trainer.precision=fp8"}, {"tune"}), 2, {"not train in FP8"});
    refuses(small({"trainer.precision=fp8"}, {"diagnose"}), 2, {"not train in FP8"});
    refuses(small({"trainer.precision_schedule={5: fp8}"}), 2, {"not train in FP8"});
    refuses(small({"trainer.precision_overrides={fc1: fp8}"}), 2, {"not train in FP8"});
    refuses(small({"trainer.precision=tf32", "--device", "cpu"}), 2, {"tf32", "32-true"});
    refuses(small({"--device", "tpu"}), 2, {"tpu", "cpu"});
}

TEST_F(BadInput, ResumeOfWhatIsNoRun) {
    refuses({"train", "--resume", "runs/none"}, 2, {"runs/none", "no such folder"});
    std::filesystem::create_directories(folder_ / "empty");
    refuses({"train", "--resume", "empty"}, 2, {"no config.yaml"});
    refuses({"train", "synthetic", "--resume", "empty"}, 2, {"--resume", "'synthetic'"});
}

TEST_F(BadInput, CheckpointOfAnotherModelLeavesItUntouched) {
    ASSERT_EQ(invar(small()).code, 0);
    const std::string before = slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors");
    refuses({"train", "--resume", "runs/run", "model.hidden=[12]", "trainer.max_epochs=2"}, 2,
            {"step_00000010.safetensors", "shape"});
    refuses({"eval", "runs/run", "model.hidden=[12]"}, 2, {"step_00000010.safetensors", "another model"});
    EXPECT_EQ(slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors"), before);
    EXPECT_EQ(invar({"eval", "runs/run"}).code, 0);
}

TEST_F(BadInput, OutputFolderThatCannotBeMade) {
    refuses(small({"output_dir=/proc/x", "--quiet"}), 2, {"/proc/x"});
    std::ofstream(folder_ / "file") << "x";
    refuses(small({"output_dir=file", "--quiet"}), 2, {"file"});
}

TEST_F(BadInput, StandardOutputThatIsFull) {
    const std::string command = INVAR_BINARY_DIR "/bin/invar formats > /dev/full 2> " + (folder_ / "err").string();
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
    EXPECT_TRUE(has(slurp(folder_ / "err"), "invar: error:"));
}

TEST_F(BadInput, InitialWeightsThatAreMissingOrTruncated) {
    refuses(small({"init_from=none.safetensors"}), 2, {"none.safetensors"});
    ASSERT_EQ(invar(small({"w.safetensors"}, {"init"})).code, 0);
    std::filesystem::resize_file(folder_ / "w.safetensors", std::filesystem::file_size(folder_ / "w.safetensors") - 7);
    refuses(small({"init_from=w.safetensors"}), 2, {"w.safetensors"});
    refuses(small({"w.safetensors"}, {"eval"}), 2, {"w.safetensors"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"))
        << "nothing is written before the weights are known to be good";
}

TEST_F(BadInput, OtherCommands) {
    refuses({"eval"}, 2, {"invar eval runs/"});
    refuses({"eval", "none"}, 2, {"none"});
    refuses({"init", "mnist_mlp"}, 2, {".safetensors"});
    refuses({"ops", "--class", "lwo"}, 2, {"did you mean 'low'?"});
    refuses({"completion", "tcsh"}, 2, {"tcsh", "bash"});
    refuses({"completion"}, 2, {"shell"});
}

TEST_F(BadInput, ControlCharactersDoNotReachTheTerminal) {
    const Result result = invar({"tr\x1b[31m\nain"});
    EXPECT_EQ(result.code, 2);
    EXPECT_FALSE(has(result.error(), "\x1b"));
}

TEST_F(BadInput, APrecisionThatTheLevelTurnsIntoAnotherIsRefusedByName) {
    refuses(small({"--candidates", "16-true,16-mixed", "amp_level=O1"}, {"validate"}), 2,
            {"--candidates 16-true", "with trainer.amp_level=O1 it would train as 16-mixed"});
    refuses(small({"--candidates", "16-mixed", "amp_level=O3"}, {"validate"}), 2, {"it would train as 16-true"});
    refuses(small({"amp_level=O0"}, {"validate"}), 2, {"with trainer.amp_level=O0 nothing is cast"});
    refuses(small({"amp_level=O0"}, {"bench"}), 2, {"--precisions 16-mixed", "it would train as 32-true"});
    refuses(small({"amp_level=O0"}, {"tune"}), 2, {"16-mixed", "it would train as 32-true"});
}

// On the CPU there is no TF32: what would be trained is FP32, under another name.
TEST_F(BadInput, PrecisionsThatTheDeviceLacksAreRefusedWhereverTheyAreNamed) {
    for (const char* command : {"train", "validate", "tune", "bench", "diagnose"}) {
        refuses(small({"--device", "cpu", "trainer.precision_overrides={1: tf32}"}, {command}), 2,
                {"trainer.precision_overrides.1 = tf32", "needs an NVIDIA GPU"});
        refuses(small({"--device", "cpu", "trainer.precision_schedule={2: tf32}"}, {command}), 2,
                {"trainer.precision_schedule.2 = tf32", "needs an NVIDIA GPU"});
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

}  // namespace
}  // namespace invar::cli
