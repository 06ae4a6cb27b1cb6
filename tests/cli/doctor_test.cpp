// `invar doctor`: a table that fits, words from what was measured, and an exit code that scripts can go by. What is
// wrong is planted by plug-ins that put other kernels in the place of the CPU's.
#include <nlohmann/json.hpp>

#include "invar/core/shell.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Doctor : public CliTest {
  protected:
    // A plug-in whose kernels are the CPU's but for these methods.
    std::string faulty(const std::string& methods) {
        std::ofstream(folder_ / "faulty.cpp") << R"(
#include "invar/kernels/stand_in.h"
#include "invar/models/registry.h"
#include "invar/plugin.h"
#include "tests/diagnose/faulty_kernels.h"
using namespace invar;
class Planted final : public testing::FaultyKernels {
)" + methods + R"(
};
struct Options {};
const RegisterModel<Options> kModel{"registered", "A plug-in has to register something.",
    [](const Options&, const DataInfo&) { return std::unique_ptr<Module>(); }, {}};
INVAR_PLUGIN { new KernelsStandIn(Device::Kind::cpu, *new Planted); }
)";
        const Result built = shell(std::string(INVAR_CXX) + " -std=c++20 -O1 -shared -fPIC -I " +
                                   shell_word(INVAR_SOURCE_DIR) + " faulty.cpp -o libfaulty.so");
        EXPECT_EQ(built.code, 0) << built.err;
        return "./libfaulty.so";
    }
    // The text with its line breaks taken out, as a reader puts sentences together.
    static std::string joined(const std::string& text) {
        std::istringstream in(text);
        std::string all;
        for (std::string word; in >> word;) all += word + " ";
        return all;
    }
};

TEST_F(Doctor, SaysWhatThisMachineCanBeTrustedWith) {
    const Result result = invar({"doctor", "--device", "cpu"});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    const std::string text = joined(result.out);
    EXPECT_TRUE(has(text, "device format casts products conv NaN/Inf repeat GFLOP/s peak result")) << result.out;
    for (const char* format : {"f32", "f16", "bf16", "f8e4m3", "f8e5m2"}) {
        EXPECT_TRUE(has(text, "cpu " + std::string(format) + " exact ")) << format << "\n" << result.out;
        EXPECT_TRUE(has(text, "cpu " + std::string(format) + ": ")) << format << "\n" << result.out;
    }
    EXPECT_TRUE(has(text, "cpu f16: right, and the same bits every time")) << result.out;
    EXPECT_TRUE(has(text, "cpu f8e5m2: converted right; nothing multiplies in it here")) << result.out;
    EXPECT_TRUE(has(text, "written and read back twice: the same bits")) << result.out;
    EXPECT_FALSE(has(text, "WRONG")) << result.out;
    EXPECT_FALSE(has(text, "tf32")) << "that is of GPUs: " << result.out;
}

TEST_F(Doctor, GivesTheSameAsJson) {
    const Result result = invar({"doctor", "--device", "cpu", "--json", "--seed", "3"});
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream lines(result.out);
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(all.size(), 6u) << result.out;
    EXPECT_EQ(all[0].at("format"), "f32");
    EXPECT_EQ(all[0].at("ok"), true);
    EXPECT_GT(all[0].at("flops_per_s"), 0);
    for (const char* check : {"conversions", "products", "convolutions", "non_finite", "repeats"}) {
        EXPECT_GT(all[2].at("checks").at(check).at("values"), 0) << check;
        EXPECT_EQ(all[2].at("checks").at(check).at("wrong"), 0) << check;
    }
    const double share = all[2].at("checks").at("products").at("worst").at("share");
    EXPECT_TRUE(share > 0 && share <= 1) << share;
    EXPECT_EQ(all[3].at("checks").size(), 1u) << "nothing multiplies in FP8";
    EXPECT_GT(all[5].at("memory").at("total"), all[5].at("memory").at("free"));
    EXPECT_GT(all[5].at("copy_per_s"), 0);
}

TEST_F(Doctor, NamesWhatIsWrongAndExitsWithOne) {
    // bf16 is cut off instead of rounded.
    const std::string plugin = faulty(R"(
    void copy(const View& from, const View& to) override {
        FaultyKernels::copy(from, to);
        if (from.dtype != Dtype::f32 || to.dtype != Dtype::bf16 || from.rank != 1) return;
        for (std::int64_t i = 0; i < from.size[0]; ++i) {
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(from.as<float>()[i * from.stride[0]]);
            if ((bits & 0x7f800000) != 0x7f800000) to.as<bf16>()[i * to.stride[0]].bits = std::uint16_t(bits >> 16);
        }
    })");
    const Result result = invar({"--plugin", plugin, "doctor", "--device", "cpu"});
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    const std::string text = joined(result.out);
    EXPECT_TRUE(has(text, "cpu bf16 WRONG ")) << result.out;
    EXPECT_TRUE(has(text, "cpu bf16: WRONG conversions: ") && has(text, " values: f32 to bf16, [")) << result.out;
    EXPECT_TRUE(has(text, ", at f32 ") && has(text, ": got ") && has(text, ", should be ")) << result.out;
    EXPECT_TRUE(has(text, "cpu bf16: avoid it on this device")) << result.out;
    EXPECT_TRUE(has(text, "cpu f16: right")) << result.out;
}

TEST_F(Doctor, TellsWrongBitsFromBitsThatDoNotRepeat) {
    const std::string plugin = faulty(R"(
    int calls_ = 0;
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        FaultyKernels::matmul(a, b, bias, out, accumulate);
        if (a.dtype == Dtype::f16 && out.dtype == Dtype::f32 && ++calls_ % 3 == 0) {
            std::uint32_t& word = out.as<std::uint32_t>()[0];
            word ^= 1;
        }
    })");
    const Result result = invar({"--plugin", plugin, "doctor", "--device", "cpu", "--json"});
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    std::istringstream lines(result.out);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(nlohmann::json::parse(line).at("ok"), true) << line;
    std::getline(lines, line);
    const auto f16 = nlohmann::json::parse(line);
    EXPECT_EQ(f16.at("ok"), false);
    EXPECT_EQ(f16.at("checks").at("products").at("wrong"), 0);
    EXPECT_GT(f16.at("checks").at("repeats").at("wrong"), 0);
    EXPECT_EQ(f16.at("checks").at("repeats").at("worst").at("operation"), "linear, weight gradient");
}

TEST_F(Doctor, SurvivesAFormatThatEndsTheProgram) {
    const std::string plugin = faulty(R"(
    void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) override {
        if (x.dtype == Dtype::f16) __builtin_trap();
        FaultyKernels::conv_forward(spec, x, w, bias, y);
    })");
    const Result result = invar({"--plugin", plugin, "doctor", "--device", "cpu"});
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    const std::string text = joined(result.out);
    EXPECT_TRUE(has(text, "cpu f16: WRONG products or convolutions: it ends the program: Illegal instruction"))
        << result.out;
    EXPECT_TRUE(has(text, "cpu f32: right") && has(text, "cpu bf16: right")) << "the rest is looked at: " << result.out;
}

TEST_F(Doctor, RefusesWhatItCannotLookAt) {
    const Result unknown = invar({"doctor", "--device", "gpu"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_TRUE(has(unknown.error(), "--device gpu: use cpu, cuda, cuda:N or all")) << unknown.err;
    EXPECT_TRUE(has(invar({"doctor", "--seed", "x"}).error(), "--seed x: it takes a whole number"));
    EXPECT_EQ(invar({"doctor", "--seed", "-1"}).code, 2);
    EXPECT_EQ(invar({"doctor", "--threads", "-2"}).code, 2);
    EXPECT_EQ(invar({"doctor", "model=mlp"}).code, 2);
    const Result gpu = invar({"doctor", "--device", "cuda:7"});
    EXPECT_EQ(gpu.code, 2) << gpu.out;
    EXPECT_TRUE(has(gpu.error(), "cuda:7")) << gpu.err;
}

}  // namespace
}  // namespace invar::cli
