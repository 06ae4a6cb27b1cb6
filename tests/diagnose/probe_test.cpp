// Probes of PyTorch runs: what is read of them, what is concluded, and what is refused.
#include "invar/diagnose/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "invar/core/error.h"
#include "invar/diagnose/probe_diagnosis.h"
#include "invar/io/file.h"
#include "invar/report/probe_page.h"
#include "tests/diagnose/probe_files.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using probes::around;
using probes::find;
using probes::Planted;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ProbeTest : public ::testing::Test {
  protected:
    ProbeTest() {
        std::string name = (fs::temp_directory_path() / "invar_probe_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~ProbeTest() override { fs::remove_all(folder_); }

    ProbeDiagnosis diagnosed(const std::vector<Planted>& tensors, const nlohmann::json& facts = {},
                             std::optional<Dtype> as = {}) {
        probes::plant(folder_, {{1, tensors, facts}});
        return diagnose_probe(open_probe(folder_), as, 10);
    }
    // The line it is refused with.
    std::string refusal() {
        try {
            diagnose_probe(open_probe(folder_), {}, 10);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }
    void rewrite_index(const std::string& text) { write_file_atomically(folder_ / "index.jsonl", text); }

    std::vector<Planted> good_ = probes::good_tensors();
    fs::path folder_;
};

TEST_F(ProbeTest, ReadsWhatWasWritten) {
    find(good_, "fc1", "output").values = {0.f, 1.f, -4.f, kNan, kInfinity, 1e-40f, 2.f, 3.f};
    probes::plant(folder_, {{7, good_, {{"loss", "nan"}, {"scale", 1024.0}, {"autocast", "bfloat16"}, {"skips", 2}}}});
    EXPECT_TRUE(is_probe(folder_));
    const Probe probe = open_probe(folder_);
    EXPECT_EQ(probe.model, "Net");
    ASSERT_EQ(probe.lines.size(), 1u);
    const ProbeStep step = probe.load(probe.lines[0]);
    EXPECT_TRUE(std::isnan(*step.loss));
    EXPECT_EQ(step.scale, 1024.0);
    EXPECT_EQ(step.autocast, Dtype::bf16);
    EXPECT_EQ(step.skips, 2);
    ASSERT_EQ(step.tensors.size(), good_.size());
    const ProbeTensor& t = step.tensors[2];
    EXPECT_EQ(t.module, "fc1");
    EXPECT_EQ(t.features, 4);
    EXPECT_EQ(t.tally.values, 8);
    EXPECT_EQ(t.tally.zeros, 1);
    EXPECT_EQ(t.tally.nans, 1);
    EXPECT_EQ(t.tally.infinities, 1);
    EXPECT_EQ(t.tally.largest, 4.0);
    EXPECT_EQ(t.tally.smallest, double(1e-40f));
    EXPECT_EQ(t.tally.exponents[0], 1) << "below the smallest normal number, and not zero";
    EXPECT_EQ(t.tally.exponents[127], 1);
    EXPECT_FALSE(t.finite());
}

TEST_F(ProbeTest, FindsNothingWrongWithAGoodStep) {
    for (const Dtype format : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2}) {
        const ProbeDiagnosis d = diagnosed(good_, {}, format);
        EXPECT_TRUE(d.healthy()) << name_of(format) << (d.concerns.empty() ? "" : d.concerns[0].text);
        EXPECT_TRUE(d.keep_fp32.empty());
    }
    const ProbeDiagnosis d = diagnosed(good_);
    EXPECT_EQ(d.format, Dtype::f16);
    EXPECT_EQ(d.rows.size(), 6u) << "three modules in two directions";
    EXPECT_EQ(d.rows.front().module, "fc1");
    EXPECT_EQ(d.rows.back().module, "fc1");
    EXPECT_EQ(d.rows.back().direction, Direction::backward);
}

TEST_F(ProbeTest, NamesTheModulesThatOverflowInTheFormatAndLeavesOutTheActivationBetween) {
    find(good_, "fc1", "output").values = around(0, 1e6f);
    find(good_, "act", "input").values = find(good_, "act", "output").values = around(0, 1e6f);
    find(good_, "fc2", "input").values = around(0, 1e6f);
    const ProbeDiagnosis d = diagnosed(good_);
    EXPECT_FALSE(d.finding);
    ASSERT_EQ(d.concerns.size(), 1u);
    EXPECT_EQ(d.concerns[0].trouble, Trouble::overflow);
    EXPECT_EQ(d.concerns[0].module, "fc1");
    EXPECT_EQ(d.keep_fp32, (std::vector<std::string>{"fc1", "fc2"}));
    EXPECT_TRUE(diagnosed(good_, {}, Dtype::bf16).healthy());
}

TEST_F(ProbeTest, LeavesWhatAutocastKeepsInFp32Alone) {
    find(good_, "fc1", "output").values = around(0, 1e6f);
    for (Planted& t : good_)
        if (t.module == "fc1") t.class_name = "LayerNorm";
    const ProbeDiagnosis d = diagnosed(good_);
    EXPECT_TRUE(d.healthy());
    EXPECT_EQ(verdict_word(d.rows.front(), 0), "-");
    find(good_, "fc1", "output_grad").values = around(0, 1e-12f);
    EXPECT_EQ(diagnosed(good_).scale.least, d.scale.least) << "its gradients need no loss scale";
}

TEST_F(ProbeTest, FindsLostDigits) {
    find(good_, "fc1", "output").values = around(3000, 1);
    const ProbeDiagnosis d = diagnosed(good_, {}, Dtype::bf16);
    ASSERT_EQ(d.concerns.size(), 1u);
    EXPECT_EQ(d.concerns[0].trouble, Trouble::significance);
    EXPECT_EQ(d.keep_fp32, std::vector<std::string>{"fc1"});
    EXPECT_EQ(verdict_word(d.rows.front(), 1), "digits");
}

TEST_F(ProbeTest, HoldsOnlyOperandsOfProductsAgainstEightBits) {
    find(good_, "fc1", "output").values = around(10, 1);
    EXPECT_TRUE(diagnosed(good_, {}, Dtype::f8e5m2).healthy()) << "results of products are 16 bits wide";
    find(good_, "fc2", "input").values = around(10, 1);
    EXPECT_EQ(diagnosed(good_, {}, Dtype::f8e5m2).keep_fp32, std::vector<std::string>{"fc2"});
}

TEST_F(ProbeTest, SaysWhichLossScaleGradientsNeed) {
    for (Planted& t : good_)
        if (t.kind.ends_with("_grad")) t.values = around(0, 1e-9f);
    const ProbeDiagnosis d = diagnosed(good_);
    EXPECT_TRUE(d.healthy()) << "the scale saves them";
    EXPECT_GT(d.vanish_unscaled, 0.9);
    EXPECT_TRUE(d.scale.exists());
    EXPECT_GT(d.scale.recommended, 20);
    EXPECT_NE(scale_sentence(d).find("without one, 100.0% vanish"), std::string::npos) << scale_sentence(d);
}

// Autocast makes the gradient of a weight in FP16 before it is widened: 5.84 overflows beyond 2^13.
TEST_F(ProbeTest, CountsGradientsOfWeightsThatAutocastCasts) {
    const int of_results = diagnosed(good_).scale.most;
    find(good_, "fc2", "weight_grad").values[3] = -5.84f;
    const ProbeDiagnosis d = diagnosed(good_);
    EXPECT_GT(of_results, 20);
    EXPECT_EQ(d.scale.most, 13);
    EXPECT_LE(d.scale.recommended, 13);
    EXPECT_NE(scale_sentence(d).find("the gradient of fc2.weight overflows first"), std::string::npos);
    find(good_, "fc2", "weight_grad").index = "bias";
    EXPECT_EQ(diagnosed(good_).scale.most, 13) << "a bias overflows as any other";
    for (Planted& t : good_)
        if (t.module == "fc2") t.class_name = "LayerNorm";
    EXPECT_EQ(diagnosed(good_).scale.most, of_results) << "its weights stay in FP32";
    for (Planted& t : good_)
        if (t.module == "fc2") t.class_name = "PReLU";
    EXPECT_EQ(diagnosed(good_).scale.most, 13) << "its one weight is cast";
}

TEST_F(ProbeTest, KeepsGradientsOfWeightsFromVanishingButForBiases) {
    const int least = diagnosed(good_).scale.least;
    for (float& value : find(good_, "fc2", "weight_grad").values) value *= 1e-6f;
    EXPECT_GT(diagnosed(good_).scale.least, least + 10);
    find(good_, "fc2", "weight_grad").index = "bias";
    EXPECT_EQ(diagnosed(good_).scale.least, least) << "such as one before a norm, whose gradient is rounding alone";
}

TEST_F(ProbeTest, CountsWhatVanishesWithoutALossScaleAtTheEdgeOfFp16) {
    const auto vanishing = [&](float gradient) {
        for (Planted& t : good_)
            if (t.kind == "output_grad") t.values.assign(64, gradient);
        return diagnosed(good_).vanish_unscaled;
    };
    EXPECT_EQ(vanishing(0x1.8p-26f), 1.0) << "less than half of the smallest value";
    EXPECT_EQ(vanishing(0x1.8p-25f), 0.0);
}

TEST_F(ProbeTest, TakesTheLossScaleOffTheGradientsThatItFinds) {
    for (Planted& t : good_)
        if (t.kind == "output_grad") t.values = around(0, 1024.f);
    std::erase_if(good_, [](const Planted& t) { return t.kind == "weight_grad"; });  // which the probe unscales
    const ProbeDiagnosis d = diagnosed(good_, {{"scale", 1048576.0}});
    const ProbeDiagnosis unscaled = diagnosed(good_);
    EXPECT_EQ(d.scale.recommended, unscaled.scale.recommended + 20);
    EXPECT_NEAR(d.rows.back().tally.largest, 1024.0 / 1048576.0, 1e-5);
}

TEST_F(ProbeTest, BlamesTheScaleOfARunInFp16AndNotItsModules) {
    for (Planted& t : good_) {
        t.dtype = t.kind.starts_with("weight") ? "float32" : "float16";
        if (t.kind == "output_grad") t.values = probes::Values(64, 1.2e-7f);
    }
    const ProbeDiagnosis d = diagnosed(good_, {{"autocast", "float16"}});
    ASSERT_EQ(d.concerns.size(), 1u);
    EXPECT_EQ(d.concerns[0].trouble, Trouble::underflow);
    EXPECT_EQ(d.concerns[0].direction, Direction::backward);
    EXPECT_EQ(d.concerns[0].module, "fc2") << "the first that gradients reach";
    EXPECT_NE(d.concerns[0].text.find("at the run's loss scale 1"), std::string::npos) << d.concerns[0].text;
    EXPECT_TRUE(d.keep_fp32.empty());
}

TEST_F(ProbeTest, SeesGradientsThatAreAllGone) {
    for (Planted& t : good_) {
        t.dtype = t.kind.starts_with("weight") ? "float32" : "float16";
        if (t.kind == "output_grad") t.values.assign(64, 0.f);
    }
    const ProbeDiagnosis d = diagnosed(good_, {{"autocast", "float16"}});
    ASSERT_EQ(d.concerns.size(), 1u);
    EXPECT_EQ(d.concerns[0].trouble, Trouble::underflow);
    EXPECT_EQ(d.concerns[0].module, "fc2");
    EXPECT_TRUE(d.keep_fp32.empty()) << "a loss scale is what they lack";
    // One of them alone may be meant, as may all of them in FP32.
    find(good_, "fc2", "output_grad").values = around(0, 1e-2f);
    find(good_, "act", "output_grad").values = around(0, 1e-2f);
    EXPECT_TRUE(diagnosed(good_, {{"autocast", "float16"}}).healthy());
    find(good_, "act", "output_grad").values.assign(64, 1.2e-7f);
    const ProbeDiagnosis next_to_it = diagnosed(good_, {{"autocast", "float16"}});
    EXPECT_EQ(verdict_word(next_to_it.rows.back(), 0), "under");
}

TEST_F(ProbeTest, TellsWhereNanArisesAndWhoIsToBlame) {
    const auto finding = [&](const std::string& module, const std::string& kind, float value, const char* dtype,
                             const nlohmann::json& facts = {}) {
        std::vector<Planted> tensors = good_;
        // All that comes after it is spoilt too.
        bool behind = false;
        for (Planted& t : tensors) {
            behind = behind || (t.module == module && t.kind == kind);
            if (!behind || t.kind == "weight") continue;
            t.values[1] = t.module == module && t.kind == kind ? value : kNan;
        }
        find(tensors, module, kind).dtype = dtype;
        find(tensors, module, kind).values[1] = value;
        nlohmann::json all = {{"failed", true}};
        if (facts.is_object()) all.update(facts);
        const ProbeDiagnosis d = diagnosed(tensors, all);
        return d.finding.value_or(ProbeFinding{0, Direction::forward, "nothing", Blame::model, "", "", true});
    };
    const ProbeFinding data = finding("", "input", kNan, "float32");
    EXPECT_EQ(data.blame, Blame::data) << data.text;
    const ProbeFinding weights = finding("fc1", "weight", kNan, "float32");
    EXPECT_EQ(weights.blame, Blame::weights) << weights.text;
    EXPECT_EQ(weights.module, "fc1");
    const ProbeFinding half = finding("fc1", "output", kInfinity, "float16");
    EXPECT_EQ(half.blame, Blame::precision) << half.text;
    EXPECT_EQ(half.module, "fc1");
    EXPECT_TRUE(half.in_module);
    const ProbeFinding single = finding("fc2", "output", kNan, "float32");
    EXPECT_EQ(single.blame, Blame::model) << single.text;
    EXPECT_EQ(single.module, "fc2");
    const ProbeFinding between = finding("fc2", "input", kInfinity, "float16");
    EXPECT_EQ(between.module, "fc2");
    EXPECT_FALSE(between.in_module) << between.text;
    const ProbeFinding scaled = finding("act", "output_grad", kInfinity, "float16", {{"scale", 65536.0}});
    EXPECT_EQ(scaled.blame, Blame::loss_scale) << scaled.text;
    EXPECT_EQ(scaled.direction, Direction::backward);
    EXPECT_EQ(scaled.module, "fc2") << "gradients were good when they reached fc2, and not when they had passed it";
    const ProbeFinding weight_grad = finding("fc1", "weight_grad", kInfinity, "float32");
    EXPECT_EQ(weight_grad.module, "fc1") << weight_grad.text;
    const ProbeDiagnosis loss = diagnosed(good_, {{"loss", "inf"}, {"failed", true}});
    ASSERT_TRUE(loss.finding);
    EXPECT_EQ(loss.finding->module, "loss");
    EXPECT_TRUE(loss.finding->remedy.starts_with("look first for NaN or Inf in the targets")) << loss.finding->remedy;
}

TEST_F(ProbeTest, CountsWhatIsNotFiniteAndTellsHowLargeTheInputsWere) {
    find(good_, "fc1", "input").values.assign(64, 0.5f);
    Planted& made = find(good_, "fc1", "output");
    made.dtype = "float16";
    made.values[3] = made.values[9] = kInfinity;
    const nlohmann::json failed = {{"failed", true}};
    EXPECT_EQ(diagnosed(good_, failed).finding->text,
              "fc1 (Linear) makes 2 infinities among 64 values in f16 of finite inputs up to 0.5");
    made.values[5] = kNan;
    EXPECT_EQ(diagnosed(good_, failed).finding->text,
              "fc1 (Linear) makes 2 infinities and 1 NaN among 64 values in f16 of finite inputs up to 0.5");
}

TEST_F(ProbeTest, LeavesInfinitiesAloneThatHarmNothing) {
    find(good_, "fc1", "input").dtype = "float16";
    find(good_, "fc1", "input").values[0] = -kInfinity;  // a mask
    EXPECT_TRUE(diagnosed(good_).healthy());
    EXPECT_TRUE(diagnosed(good_, {{"failed", true}}).finding);
}

TEST_F(ProbeTest, TakesASkipForAScalersDailyBread) {
    for (Planted& t : good_)
        if (t.kind == "output_grad") t.dtype = "float16", t.values[0] = kInfinity;
    const nlohmann::json facts = {{"failed", true}, {"skipped", true}, {"scale", 65536.0}, {"autocast", "float16"}};
    probes::plant(folder_, {{1, good_, facts}, {2, probes::good_tensors()}});
    const ProbeDiagnosis d = diagnose_probe(open_probe(folder_), {}, 10);
    EXPECT_TRUE(d.healthy()) << (d.finding ? d.finding->text : d.concerns[0].text);
    EXPECT_EQ(d.overflows, 1);
    EXPECT_NE(skips_sentence(d).find("in 1 of those probed"), std::string::npos) << skips_sentence(d);
    find(good_, "fc2", "output").values[0] = kNan;  // not the scale's doing
    probes::plant(folder_, {{1, good_, facts}});
    EXPECT_TRUE(diagnose_probe(open_probe(folder_), {}, 10).finding);
}

TEST_F(ProbeTest, DoesNotOfferToMendCodeBetweenModulesByAPatch) {
    find(good_, "fc2", "input").dtype = "float16";
    find(good_, "fc2", "input").values[0] = kInfinity;
    find(good_, "fc2", "output").values.assign(64, kNan);
    EXPECT_FALSE(diagnosed(good_, {{"failed", true}}, Dtype::bf16).finding->in_module);
    EXPECT_TRUE(diagnosed(good_, {{"failed", true}}, Dtype::bf16).keep_fp32.empty());
}

TEST_F(ProbeTest, ReadsTheLastStepsAndEveryOneThatFailed) {
    std::vector<probes::PlantedStep> steps;
    for (int i = 1; i <= 6; ++i) steps.push_back({i, good_, {{"failed", i == 2}}});
    probes::plant(folder_, steps);
    EXPECT_EQ(diagnose_probe(open_probe(folder_), {}, 2).steps, (std::vector<std::int64_t>{2, 5, 6}));
}

TEST_F(ProbeTest, RefusesFoldersThatAreNotWhatTheySay) {
    EXPECT_FALSE(is_probe(folder_));
    rewrite_index("");
    EXPECT_NE(refusal().find("not the index of a probe"), std::string::npos) << refusal();
    rewrite_index("{\"format\": \"other\"}\n");
    EXPECT_NE(refusal().find("not the index of a probe"), std::string::npos) << refusal();
    rewrite_index("[[[[\n{}\n");
    EXPECT_NE(refusal().find("line 1: not a JSON object"), std::string::npos) << refusal();
    nlohmann::json header = probes::header();
    header["version"] = 99;
    rewrite_index(header.dump() + "\n");
    EXPECT_NE(refusal().find("version 99 of the probe's format, and this program reads version 1"), std::string::npos);
    header["version"] = "\x1b[31m";
    rewrite_index(header.dump() + "\n");
    EXPECT_EQ(refusal().find('\x1b'), std::string::npos) << "a terminal would act on it";
    rewrite_index(probes::header().dump() + "\n");
    EXPECT_NE(refusal().find("no step was probed"), std::string::npos) << refusal();
    for (const char* file : {"../step_1.safetensors", "/etc/passwd", "", ".."}) {
        rewrite_index(probes::header().dump() + "\n" + nlohmann::json({{"step", 1}, {"file", file}}).dump() + "\n");
        EXPECT_NE(refusal().find("must be a file of this folder"), std::string::npos) << file << ": " << refusal();
    }
    rewrite_index(probes::header().dump() + "\n{\"step\": -1, \"file\": \"a\"}\n");
    EXPECT_NE(refusal().find("step = -1: is not a count"), std::string::npos) << refusal();
}

TEST_F(ProbeTest, RefusesFilesThatAreDamagedAndGoesOnWithTheOthers) {
    probes::plant(folder_, {{1, good_}, {2, good_}});
    const fs::path file = folder_ / "step_2.safetensors";
    const std::string whole = read_file(file);
    write_file_atomically(file, std::string_view(whole).substr(0, whole.size() / 2));
    ProbeDiagnosis d = diagnose_probe(open_probe(folder_), {}, 10);
    EXPECT_EQ(d.steps, std::vector<std::int64_t>{1});
    ASSERT_EQ(d.passed_over.size(), 1u);
    EXPECT_NE(d.passed_over[0].find("step_2.safetensors"), std::string::npos) << d.passed_over[0];
    fs::remove(file);
    EXPECT_EQ(diagnose_probe(open_probe(folder_), {}, 10).passed_over.size(), 1u);
    fs::remove(folder_ / "step_1.safetensors");
    EXPECT_NE(refusal().find("step_"), std::string::npos) << "none is left";

    // One that failed is what was asked about.
    probes::plant(folder_, {{1, good_}, {2, good_, {{"failed", true}}}});
    fs::remove(file);
    EXPECT_NE(refusal().find("step_2.safetensors"), std::string::npos) << refusal();
}

TEST_F(ProbeTest, RefusesStatisticsThatContradictThemselves) {
    probes::plant(folder_, {{1, good_}});
    const fs::path file = folder_ / "step_1.safetensors";
    SafetensorsContent content = load_safetensors(file);
    auto* const row = static_cast<std::int64_t*>(content.tensors.at("statistics").raw());
    const auto refused_with = [&](std::int64_t column, std::int64_t value) {
        const std::int64_t before = std::exchange(row[column], value);
        save_safetensors(file, content.tensors, content.metadata);
        row[column] = before;
        return refusal();
    };
    for (const auto& [column, value] : {std::pair<std::int64_t, std::int64_t>{100, -1},
                                        {256, 1000},
                                        {257, 1},
                                        {258, 0x7f800000},
                                        {258, 0},
                                        {259, 5},
                                        {259, 0},
                                        {130, std::numeric_limits<std::int64_t>::max()}})
        EXPECT_NE(refused_with(column, value).find("statistics contradict themselves"), std::string::npos)
            << column << " " << value;
    content.metadata["tensors"] = "[{\"module\": 3}]";
    EXPECT_NE(refused_with(0, 0).find("not 1 rows of 260 integers"), std::string::npos);
    content.metadata["tensors"] = "[";
    EXPECT_NE(refused_with(0, 0).find("is not JSON"), std::string::npos);
    content.metadata.erase("tensors");
    EXPECT_NE(refused_with(0, 0).find("not written by invar_probe.py"), std::string::npos);
}

TEST_F(ProbeTest, ShowsNamesWithEscapesHarmlessly) {
    const std::string name = "a\x1b[2J\"]\n# <script>\xff";
    for (Planted& t : good_)
        if (t.module == "fc1") t.module = "a\x1b[2J\"]\n# <script>", t.values = around(0, 1e6f);
    const ProbeDiagnosis d = diagnosed(good_);
    ASSERT_FALSE(d.keep_fp32.empty());
    const std::string patch = fp32_patch({name}, "probe\nimport os");
    EXPECT_NE(patch.find(R"(    "a\U0000001b[2J\U00000022]\U0000000a# <script>\U0000003f",)"), std::string::npos)
        << patch;
    EXPECT_EQ(patch.find("\nimport os"), std::string::npos) << "a folder's name stays in its comment";
    const std::string page = html_probe(d, fp32_patch(d.keep_fp32, "probe"));
    EXPECT_EQ(page.find("<script>"), std::string::npos);
    EXPECT_EQ(page.find('\x1b'), std::string::npos);
    EXPECT_EQ(d.concerns[0].text.find('\x1b'), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(json_probe(d)).at("keep_fp32")[0], "a\x1b[2J\"]\n# <script>");
}

}  // namespace
}  // namespace invar
