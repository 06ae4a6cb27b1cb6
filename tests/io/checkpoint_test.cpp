#include "invar/io/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <random>

#include "invar/io/file.h"
#include "scratch.h"

namespace invar {

namespace {

Checkpoint sample(int step = 1) {
    Checkpoint checkpoint;
    checkpoint.tensors = {{"model.fc.weight", Tensor::from<float>({1, 2, 3, 4, 5, float(step)}, {2, 3})},
                          {"model.fc.bias", Tensor::from<float>({0.5f}, {1}, Dtype::bf16)},
                          {"optimizer.step", Tensor::scalar(step, Dtype::i64)}};
    checkpoint.state = {{"step", step}, {"rng", {{"seed", 18446744073709551615u}, {"offset", 3}}}, {"lr", 0.1}};
    return checkpoint;
}

void save_sample(const std::filesystem::path& path) {
    save_checkpoint(path, sample());
}

}  // namespace

TEST(Checkpoint, RoundTripsTensorsAndState) {
    const Scratch scratch;
    save_sample(scratch / "a");
    const Checkpoint back = load_checkpoint(scratch / "a");
    EXPECT_EQ(back.state, sample().state);
    ASSERT_EQ(back.tensors.size(), 3u);
    EXPECT_EQ(back.tensors.at("model.fc.weight").to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 1}));
    EXPECT_EQ(back.tensors.at("model.fc.bias").dtype(), Dtype::bf16);
    EXPECT_NO_THROW(verify_checkpoint(scratch / "a"));
}

TEST(Checkpoint, IsTheSameBytesForTheSameContent) {
    const Scratch scratch;
    save_sample(scratch / "a");
    save_sample(scratch / "b");
    EXPECT_EQ(read_file(scratch / "a"), read_file(scratch / "b"));
}

TEST(Checkpoint, OpensAsAPlainSafetensorsFile) {
    const Scratch scratch;
    save_sample(scratch / "a");
    const SafetensorsContent content = load_safetensors(scratch / "a");
    EXPECT_EQ(content.metadata.at("format"), "invar-checkpoint-2");
    EXPECT_EQ(content.tensors.at("model.fc.weight").shape(), (Shape{2, 3}));
}

TEST(Checkpoint, KeepsNumbersThatJsonLacks) {
    const Scratch scratch;
    const double infinity = std::numeric_limits<double>::infinity();
    Checkpoint checkpoint;
    checkpoint.state = {{"best", infinity}, {"list", {-infinity, std::nan(""), 1.0 / 3.0, -0.0, 5e-324}}};
    save_checkpoint(scratch / "a", checkpoint);
    const nlohmann::json state = load_checkpoint(scratch / "a").state;
    EXPECT_EQ(state["best"].get<double>(), infinity);
    EXPECT_EQ(state["list"][0].get<double>(), -infinity);
    EXPECT_TRUE(std::isnan(state["list"][1].get<double>()));
    EXPECT_EQ(state["list"][2].get<double>(), 1.0 / 3.0);
    EXPECT_TRUE(std::signbit(state["list"][3].get<double>()));
    EXPECT_EQ(state["list"][4].get<double>(), 5e-324);
}

TEST(Checkpoint, RefusesStateThatWouldNotComeBack) {
    const Scratch scratch;
    Checkpoint checkpoint;
    checkpoint.state = {{"name", "\xff"}};
    EXPECT_THROW(save_checkpoint(scratch / "a", checkpoint), UsageError);
    checkpoint.state = {{"$float", "inf"}};
    EXPECT_THROW(save_checkpoint(scratch / "a", checkpoint), UsageError);
    checkpoint.state = 1;
    for (int i = 0; i < 100; ++i) checkpoint.state = nlohmann::json::array({checkpoint.state});
    EXPECT_THROW(save_checkpoint(scratch / "a", checkpoint), UsageError);
    EXPECT_TRUE(scratch.names().empty());
}

TEST(Checkpoint, DetectsEverySingleFlippedBit) {
    const Scratch scratch;
    save_sample(scratch / "a");
    std::string bytes = read_file(scratch / "a");
    ASSERT_NO_THROW(parse_checkpoint(bytes, "whole"));
    for (std::size_t i = 0; i < bytes.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            bytes[i] = char(bytes[i] ^ (1 << bit));
            EXPECT_THROW(parse_checkpoint(bytes, "flipped"), IoError) << "byte " << i << " bit " << bit;
            bytes[i] = char(bytes[i] ^ (1 << bit));
        }
}

TEST(Checkpoint, DetectsEveryTruncationAndAnyAddition) {
    const Scratch scratch;
    save_sample(scratch / "a");
    const std::string bytes = read_file(scratch / "a");
    for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_THROW(parse_checkpoint(std::string_view(bytes).substr(0, size), "cut"), IoError) << size;
    EXPECT_THROW(parse_checkpoint(bytes + '\0', "longer"), IoError);
    put(scratch / "cut", bytes.substr(0, bytes.size() - 1));
    EXPECT_THROW(verify_checkpoint(scratch / "cut"), IoError);
}

TEST(Checkpoint, SaysWhatAnOrdinarySafetensorsFileLacks) {
    const Scratch scratch;
    save_safetensors(scratch / "weights", sample().tensors);
    const std::string message = message_of<IoError>([&] { load_checkpoint(scratch / "weights"); });
    EXPECT_TRUE(has(message, "not an Invar checkpoint") && has(message, "init_from=")) << message;
    save_safetensors(scratch / "weights", {}, {{"format", "invar-checkpoint-2"}});
    EXPECT_THROW(load_checkpoint(scratch / "weights"), IoError);
    save_safetensors(scratch / "weights", {}, {{"format", "invar-checkpoint-2"}, {"state", "{"}});
    EXPECT_THROW(load_checkpoint(scratch / "weights"), IoError);
}

TEST(Checkpoint, OfAnEarlierVersionIsRefusedByItsName) {
    const Scratch scratch;
    save_safetensors(scratch / "old", {}, {{"crc32c", "00000000"}, {"format", "invar-checkpoint-1"}, {"state", "{}"}});
    const std::string message = message_of<IoError>([&] { load_checkpoint(scratch / "old"); });
    EXPECT_TRUE(has(message, "earlier version") && has(message, "invar-checkpoint-1")) << message;
}

TEST(Checkpoint, WithoutItsChecksumsIsRefused) {
    const SafetensorsHeader header{{}, {}, {{"format", "invar-checkpoint-2"}, {"state", "{}"}}};
    const std::string message = message_of<IoError>([&] { parse_checkpoint(format_header(header), "rewritten"); });
    EXPECT_TRUE(has(message, "rewritten by another program")) << message;
}

TEST(CheckpointFolder, KeepsTheNewestAndFindsTheLatest) {
    const Scratch scratch;
    const CheckpointFolder folder(scratch / "checkpoints", 2);
    EXPECT_FALSE(folder.latest());
    for (const int step : {1, 2, 10, 123}) EXPECT_EQ(folder.save(step, sample(step)), folder.path_of(step));
    EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{10, 123}));
    const LatestCheckpoint latest = folder.latest();
    EXPECT_EQ(latest.step, 123);
    EXPECT_EQ(latest.path.filename(), "step_00000123.safetensors");
    EXPECT_TRUE(latest.passed_over.empty());
    EXPECT_EQ(load_checkpoint(latest.path).state["step"], 123);
    folder.save(1'234'567'890'123, sample());
    EXPECT_EQ(folder.latest().step, 1'234'567'890'123);
}

TEST(CheckpointFolder, PassesOverBrokenOnesAndSaysSo) {
    const Scratch scratch;
    const CheckpointFolder folder(scratch.path(), 5);
    for (const int step : {1, 2, 3}) folder.save(step, sample(step));
    std::string bytes = read_file(folder.path_of(3));
    bytes.back() = char(bytes.back() ^ 1);
    put(folder.path_of(3), bytes);
    put(folder.path_of(2), bytes.substr(0, 100));
    const LatestCheckpoint latest = folder.latest();
    EXPECT_EQ(latest.step, 1);
    ASSERT_EQ(latest.passed_over.size(), 2u);
    EXPECT_TRUE(has(latest.passed_over[0], "step_00000003") && has(latest.passed_over[0], "checksum")) << latest.passed_over[0];
    EXPECT_TRUE(has(latest.passed_over[1], "step_00000002") && has(latest.passed_over[1], "truncated")) << latest.passed_over[1];
    put(folder.path_of(1), "");
    EXPECT_FALSE(folder.latest());
    EXPECT_EQ(folder.latest().passed_over.size(), 3u);
}

TEST(CheckpointFolder, NeverPrunesTheOnlyGoodOneForBrokenLaterOnes) {
    const Scratch scratch;
    const CheckpointFolder folder(scratch.path(), 1);
    put(folder.path_of(100), "broken");
    put(folder.path_of(200), "broken");
    folder.save(50, sample(50));
    folder.save(60, sample(60));
    EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{60, 100, 200}));
    EXPECT_EQ(folder.latest().step, 60);
}

TEST(CheckpointFolder, IgnoresFilesThatAreNotItsOwn) {
    const Scratch scratch;
    const CheckpointFolder folder(scratch.path(), 1);
    for (const char* name : {"step_5.safetensors", "step_00000005.safetensors.bak", "best.safetensors", "step_",
                             "step_-0000001.safetensors", "step_99999999999999999999.safetensors"})
        put(scratch / name, "mine");
    folder.save(7, sample());
    folder.save(8, sample());
    EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{8}));
    EXPECT_EQ(scratch.names().size(), 7u);
}

TEST(CheckpointFolder, RefusesBadArgumentsAndUnwritableFolders) {
    const Scratch scratch;
    EXPECT_THROW(CheckpointFolder(scratch.path(), 0), UsageError);
    EXPECT_THROW(CheckpointFolder(scratch.path(), 1).save(-1, sample()), UsageError);
    put(scratch / "file", "precious");
    EXPECT_THROW(CheckpointFolder(scratch / "file", 1).save(1, sample()), IoError);
    EXPECT_THROW(CheckpointFolder(scratch / "file", 1).latest(), IoError);
    EXPECT_THROW(CheckpointFolder("/proc/invar", 1).save(1, sample()), IoError);
    EXPECT_EQ(read_file(scratch / "file"), "precious");
}

TEST(CheckpointFolder, SurvivesBeingKilledAtAnyMoment) {
    const Scratch scratch;
    CheckpointFolder(scratch.path(), 2).save(0, sample(0));
    std::mt19937 random(7);
    std::int64_t last = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
        const pid_t child = ::fork();
        if (child == 0) {
            const CheckpointFolder folder(scratch.path(), 2);
            Checkpoint checkpoint = sample();
            checkpoint.tensors.emplace("big", Tensor::empty({200'000}, Dtype::u8));
            for (std::int64_t step = last + 1;; ++step) {
                checkpoint.state["step"] = step;
                folder.save(step, checkpoint);
            }
        }
        ::usleep(std::uniform_int_distribution<useconds_t>(1000, 25'000)(random));
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        const CheckpointFolder folder(scratch.path(), 2);
        const LatestCheckpoint latest = folder.latest();
        ASSERT_TRUE(latest) << attempt;
        EXPECT_TRUE(latest.passed_over.empty()) << latest.passed_over[0];
        EXPECT_EQ(load_checkpoint(latest.path).state["step"], latest.step);
        EXPECT_GE(latest.step, last) << "a finished checkpoint was lost";
        // A kill between writing and pruning may leave one file too many; the next save prunes it.
        for (const std::string& name : scratch.names()) EXPECT_TRUE(name.starts_with("step_")) << name << " was left";
        last = latest.step;
    }
    EXPECT_GT(last, 0) << "no child got as far as saving; the test shows nothing";
    CheckpointFolder(scratch.path(), 2).save(last + 1, sample());
    EXPECT_EQ(scratch.names().size(), 2u);
}

}  // namespace invar
