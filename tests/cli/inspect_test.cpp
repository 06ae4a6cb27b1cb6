// `invar inspect`, and what `invar train` says of a precision that was never validated.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Inspect : public CliTest {
  protected:
    // A safetensors file with these entries, and so many bytes of zeros for them.
    void put_header(const std::string& name, const std::string& header, std::size_t bytes) const {
        const std::uint64_t length = header.size();
        std::ofstream out(folder_ / name, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&length), 8);
        out << header << std::string(bytes, '\0');
    }
    // A safetensors file of f32 tensors, as any framework would write it.
    void put(const std::string& name, const std::vector<std::pair<std::string, std::vector<float>>>& tensors) const {
        std::string header = "{", data;
        for (const auto& [tensor, values] : tensors) {
            if (header.size() > 1) header += ',';
            header += nlohmann::json(tensor).dump();
            header += fmt::format(R"(:{{"dtype":"F32","shape":[{}],"data_offsets":[{},)", values.size(), data.size());
            data.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
            header += std::to_string(data.size()) + "]}";
        }
        header += "}";
        const std::uint64_t length = header.size();
        std::ofstream out(folder_ / name, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&length), 8);
        out << header << data;
    }
    static std::vector<nlohmann::json> json_lines(const std::string& text) {
        std::vector<nlohmann::json> all;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
        return all;
    }
};

TEST_F(Inspect, KeepsFiguresFlushRightBesideATensorWithoutValues) {
    put("g.safetensors", {{"1.weight", {1.0f, -0.5f}}, {"10.weight", {}}});
    const Result result = invar({"inspect", "g.safetensors", "--as", "fp16"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "\n  1.weight   f32")) << "a name is no number\n" << result.out;
    std::istringstream table(result.out);
    std::size_t header = 0, empty = 0;
    for (std::string line; std::getline(table, line);) {
        if (has(line, " largest ")) header = line.find("largest") + 7;
        if (has(line, " empty ")) empty = line.find("empty") + 5;
    }
    EXPECT_GT(header, 0u);
    EXPECT_EQ(header, empty) << result.out;
}

TEST_F(Inspect, TellsTheSizeOfASmallFileInAFittingUnit) {
    put("g.safetensors", {{"1.weight", {1.0f, -0.5f}}});
    const Result result = invar({"inspect", "g.safetensors", "--as", "fp16"});
    EXPECT_TRUE(has(result.out, "1 tensor, 2 values, 8 B in ") && !has(result.out, "0.00")) << result.out;
}

TEST_F(Inspect, ShowsTheWorstTensorFirstAndTheScaleThatSavesIt) {
    put("g.safetensors",
        {{"fine", {1.0f, -0.5f, 0.25f}}, {"tiny", {0x1p-30f, 0x1p-29f, 1e-9f, 0.0f}}, {"huge", {1e6f, 1, 1}}});
    const Result result = invar({"inspect", "g.safetensors", "--as", "fp16"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_LT(result.out.find("tiny"), result.out.find("huge"));
    EXPECT_LT(result.out.find("huge"), result.out.find("fine"));
    EXPECT_LT(result.out.find("fine"), result.out.find("total"));
    EXPECT_TRUE(has(result.out, "g.safetensors as f16") && has(result.out, "2^16") && has(result.out, "100.00%"))
        << result.out;
    EXPECT_TRUE(has(result.out, "3 tensors, 10 values")) << result.out;
    EXPECT_FALSE(has(result.out, "bf16"));
    std::size_t width = 0;  // the table lines up
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("  ") && has(line, "f32")) {
            if (width == 0) width = line.find("f32");
            EXPECT_EQ(line.find("f32"), width) << result.out;
        }
    EXPECT_TRUE(has(invar({"inspect", "g.safetensors", "--top", "1", "--as", "fp16"}).out, "2 more tensors"));
}

TEST_F(Inspect, GivesTheCountsAsJson) {
    put("a.safetensors", {{"w", {70000.0f, 1e-10f, 1.0f, NAN}}});
    put("b.safetensors", {{"v", {2.0f}}});
    const Result result = invar({"inspect", "a.safetensors", "b.safetensors", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto lines = json_lines(result.out);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].at("tensor"), "w");
    EXPECT_EQ(lines[0].at("nans"), 1);
    EXPECT_EQ(lines[0].at("f16").at("overflow"), 1);
    EXPECT_EQ(lines[0].at("f16").at("vanish"), 1);
    EXPECT_EQ(lines[0].at("bf16").at("overflow"), 0);
    EXPECT_EQ(lines[0].at("f8e4m3").at("overflow"), 1);
    EXPECT_EQ(lines[2].at("tensor"), "total");
    EXPECT_EQ(lines[2].at("values"), 5);
    EXPECT_TRUE(
        has(invar({"inspect", "a.safetensors"}).err, "1 NaN and 0 infinite values in a.safetensors itself, in w"));
}

TEST_F(Inspect, LeavesOutWhatItCannotJudgeAndSaysWhich) {
    put_header("q.safetensors",
               R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)"
               R"("data_offsets":[4,8]},"c":{"dtype":"U16","shape":[2],"data_offsets":[8,12]},"d":{"dtype":"BOOL",)"
               R"("shape":[4],"data_offsets":[12,16]},"e":{"dtype":"F4","shape":[8],"data_offsets":[16,20]},)"
               R"("f":{"dtype":"Q5_K","shape":[3],"data_offsets":[20,27]},"g":{"dtype":"Q5_K","shape":[0],)"
               R"("data_offsets":[27,27]},"h":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[27,29]}})",
               29);
    const Result result = invar({"inspect", "q.safetensors", "--as", "fp16"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "2 tensors, 3 values")) << result.out;
    EXPECT_TRUE(has(result.out, "f8e4m3")) << result.out;
    EXPECT_TRUE(has(result.out, "3 tensors left out, not floating: I8, U16, BOOL\n")) << result.out;
    EXPECT_TRUE(has(result.out, "1 tensor left out, of a format that is not judged: F4\n")) << result.out;
    EXPECT_EQ(result.err, "invar: warning: tensor \"f\" and 1 more left out, the dtype \"Q5_K\" is not known\n");
    const auto lines = json_lines(invar({"inspect", "q.safetensors", "--as", "fp16", "--json"}).out);
    ASSERT_EQ(lines.size(), 2u + 6u + 1u);
    EXPECT_EQ(lines[2].at("tensor"), "a");
    EXPECT_EQ(lines[2].at("left_out"), "not floating");
    EXPECT_EQ(lines.back().at("left_out"), 6);
    // What others wrote stays refused for training.
    const Result init = invar(small({"init_from=q.safetensors"}));
    EXPECT_NE(init.code, 0);
    EXPECT_TRUE(has(init.error(), "tensor \"a\" has the dtype \"I8\"")) << init.err;
}

TEST_F(Inspect, StillRefusesAFileWhoseForeignTensorsDoNotFit) {
    put_header("q.safetensors",
               R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)"
               R"("data_offsets":[2,6]}})",
               6);
    const Result result = invar({"inspect", "q.safetensors"});
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(has(result.error(), "q.safetensors") && has(result.error(), "overlap")) << result.err;
}

TEST_F(Inspect, SaysInOneLineWhatIsWrong) {
    std::ofstream(folder_ / "junk.safetensors") << "no such thing, but long enough for a length";
    put("a.safetensors", {{"w", {1.0f}}});
    EXPECT_EQ(invar({"inspect"}).code, 2);
    EXPECT_EQ(invar({"inspect", "a.safetensors", "--as", "fp17"}).code, 2);
    EXPECT_TRUE(has(invar({"inspect", "a.safetensors", "--as", "fp17"}).error(), "is none of fp16, bf16, fp8"));
    EXPECT_EQ(invar({"inspect", "missing.safetensors"}).code, 2);
    EXPECT_TRUE(has(invar({"inspect", "missing.safetensors"}).error(), "missing.safetensors"));
    EXPECT_EQ(invar({"inspect", "junk.safetensors"}).code, 2);
    EXPECT_TRUE(has(invar({"inspect", "junk.safetensors"}).error(), "junk.safetensors"));
    std::ofstream(folder_ / "summary.json") << "{\"loss\": 1}";
    EXPECT_TRUE(has(invar({"inspect", "summary.json"}).error(), "it is no index of sharded weights"));
    std::ofstream(folder_ / "a.npy") << "\x93NUMPY and whatever else is in it";
    EXPECT_TRUE(has(invar({"inspect", "a.npy"}).error(), "a.npy: a single array in NumPy's .npy format"));
    EXPECT_TRUE(has(invar({"inspect", "a.npy"}).error(), "np.savez(FILE, NAME=np.load(\"a.npy\"))"));
}

TEST_F(Inspect, ReadsFilesOfOtherProgramsAndRunsNothingOfThem) {
    const std::string files = INVAR_SOURCE_DIR "/tests/formats/files/";
    const Result torch = invar({"inspect", files + "checkpoint.pt", "--as", "fp16"});
    ASSERT_EQ(torch.code, 0) << torch.err;
    EXPECT_TRUE(has(torch.out, "  weight ") && has(torch.out, "14 tensors")) << torch.out;
    EXPECT_TRUE(has(torch.out, "1 tensor left out, not floating: int64")) << torch.out;
    const Result numpy = invar({"inspect", files + "deflated.npz", "--json"});
    ASSERT_EQ(numpy.code, 0) << numpy.err;
    EXPECT_EQ(json_lines(numpy.out).back().at("values"), 13);
    for (const char* file : {"module.pt", "expanded.pt", "before_1_6.pt"}) {
        const Result refused = invar({"inspect", files + file});
        EXPECT_EQ(refused.code, 2) << file;
        EXPECT_TRUE(has(refused.error(), file)) << refused.err;
    }
}

TEST_F(Inspect, FollowsOneTensorOverTheStepsOfARun) {
    ASSERT_EQ(invar(small({"exp_name=r", "trainer.checkpoint_every_n_steps=5"})).code, 0);
    const Result table = invar({"inspect", "runs/r", "--tensor", "1.weight", "--as", "fp16"});
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_TRUE(has(table.out, "model.1.weight, f32 [8, 36]")) << table.out;
    EXPECT_TRUE(has(table.out, "\n  5 ") && has(table.out, "\n  10 ")) << table.out;
    const auto lines = json_lines(invar({"inspect", "runs/r", "--tensor", "1.weight", "--json"}).out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[1].at("step"), 10);
    EXPECT_GT(lines[1].at("norm"), 0);
    EXPECT_LT(lines[1].at("min"), lines[1].at("max"));
    EXPECT_EQ(invar({"inspect", "runs/r", "--tensor", "nothing"}).code, 2);
    EXPECT_TRUE(has(invar({"inspect", "runs/r", "--tensor", "weight"}).error(), "give the whole name"));
    const Result run = invar({"inspect", "runs/r"});
    EXPECT_EQ(run.code, 2);
    EXPECT_TRUE(has(run.error(), "runs/r/checkpoints/step_00000010.safetensors, or follow one tensor")) << run.err;
}

}  // namespace
}  // namespace invar::cli
