// Two probes of one model: where they part, and what rounding allows.
#include "invar/diagnose/probe_compare.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "invar/core/error.h"
#include "invar/report/probe_page.h"
#include "tests/diagnose/probe_files.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using probes::find;
using probes::Planted;
using Why = ProbeParting::Why;

class ProbeComparisonTest : public ::testing::Test {
  protected:
    ProbeComparisonTest() {
        std::string name = (fs::temp_directory_path() / "invar_probes_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~ProbeComparisonTest() override { fs::remove_all(folder_); }

    ProbeComparison compared(const nlohmann::json& facts = {}) {
        probes::plant(folder_ / "a", {{1, a_}});
        probes::plant(folder_ / "b", {{1, b_, facts}});
        return compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b"));
    }
    // Every value of b moved by a share of its own.
    void disturb(const std::string& module, const std::string& kind, float by) {
        Planted& t = find(b_, module, kind);
        for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] *= 1 + (i % 2 == 0 ? by : -by);
    }
    void make_bf16() {
        for (Planted& t : b_)
            if (!t.kind.starts_with("weight") && !t.module.empty()) t.dtype = "bfloat16";
        for (const char* module : {"fc1", "act", "fc2"})
            for (const char* kind : {"input", "output", "output_grad"}) disturb(module, kind, 0.004f);
    }

    std::vector<Planted> a_ = probes::good_tensors(), b_ = probes::good_tensors();
    fs::path folder_;
};

TEST_F(ProbeComparisonTest, AgreesWithWhatRoundingExplains) {
    EXPECT_FALSE(compared().parting) << "the same twice";
    make_bf16();
    const ProbeComparison c = compared({{"autocast", "bfloat16"}});
    EXPECT_FALSE(c.parting) << parting_sentence(c);
    EXPECT_EQ(c.lower, Dtype::bf16);
    EXPECT_EQ(c.rows.size(), 6u);
    EXPECT_NEAR(c.rows[0].difference, 0.004, 1e-4);
}

TEST_F(ProbeComparisonTest, HoldsTwoRunsInFp32ToFp32) {
    disturb("act", "output", 0.004f);
    const ProbeComparison c = compared();
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->module, "act");
    EXPECT_EQ(c.lower, Dtype::f32);
}

TEST_F(ProbeComparisonTest, NamesTheFirstModuleWhoseResultsPartBeyondRounding) {
    make_bf16();
    disturb("fc2", "output", 0.5f);
    disturb("fc2", "output_grad", 0.5f);
    const ProbeComparison c = compared({{"autocast", "bfloat16"}});
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->why, Why::rounding);
    EXPECT_EQ(c.parting->module, "fc2");
    EXPECT_EQ(c.parting->direction, Direction::forward);
    EXPECT_NEAR(c.parting->inputs, 0.004, 1e-4) << "what it was given agreed";
}

TEST_F(ProbeComparisonTest, ComparesGradientsWithoutTheirLossScales) {
    for (Planted& t : b_)
        if (t.kind == "output_grad")
            for (float& value : t.values) value *= 1024;
    EXPECT_FALSE(compared({{"scale", 1024.0}}).parting);
    const ProbeComparison c = compared();
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->direction, Direction::backward);
    EXPECT_EQ(c.parting->module, "fc2");
}

TEST_F(ProbeComparisonTest, TellsOtherReasonsFromRounding) {
    const std::vector<Planted> good = b_;
    disturb("", "input", 0.5f);
    EXPECT_EQ(compared().parting->why, Why::data);
    b_ = good;
    disturb("fc2", "input", 0.5f);
    EXPECT_EQ(compared().parting->why, Why::between_modules);
    b_ = good;
    find(b_, "act", "output").values[5] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(compared().parting->why, Why::not_finite);
    b_ = good;
    for (std::vector<Planted>* side : {&a_, &b_})
        for (Planted& t : *side)
            if (t.module == "act") t.class_name = "Dropout";
    disturb("act", "output", 1.0f);
    EXPECT_EQ(compared().parting->why, Why::random);
    b_ = good;
    find(b_, "fc1", "output").values.resize(32);
    EXPECT_EQ(compared().parting->why, Why::shape);
}

TEST_F(ProbeComparisonTest, WantsTheSameWeightsInTheFirstStepAndLetsThemDriftLater) {
    const std::vector<Planted> good = b_;
    disturb("fc1", "weight", 0.1f);
    disturb("fc1", "output", 0.1f);
    const ProbeComparison first = compared();
    ASSERT_TRUE(first.parting);
    EXPECT_EQ(first.parting->why, Why::weights);
    EXPECT_EQ(first.parting->module, "fc1");
    EXPECT_NEAR(first.parting->difference, 0.1, 0.01);

    probes::plant(folder_ / "a", {{1, a_}, {500, a_}, {1000, a_}});
    const std::vector<Planted> drifted = b_;
    disturb("fc1", "weight", 0.9f), disturb("fc2", "weight", 0.9f);
    probes::plant(folder_ / "b", {{1, good}, {500, drifted}, {1000, b_}});
    const ProbeComparison later = compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b"));
    EXPECT_FALSE(later.parting) << parting_sentence(later);
    EXPECT_EQ(later.steps, (std::vector<std::int64_t>{1, 500}));
    EXPECT_EQ(later.other_weights_from, 1000) << "two models by then";

    std::vector<Planted> unexplained = good;  // the same results, and weights that do not explain them
    std::swap(unexplained, b_);
    disturb("fc1", "output", 0.1f);
    probes::plant(folder_ / "b", {{1, good}, {500, b_}});
    EXPECT_TRUE(compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b")).parting);
}

TEST_F(ProbeComparisonTest, TakesWeightsForThoseOfTwoModelsWhereTheyDifferByMoreThanAQuarter) {
    const std::vector<Planted> good = b_;
    const auto apart_by = [&](float share) {
        b_ = good;
        disturb("fc1", "weight", share), disturb("fc2", "weight", share);
        probes::plant(folder_ / "a", {{1, a_}, {500, a_}});
        probes::plant(folder_ / "b", {{1, good}, {500, b_}});
        return compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b")).other_weights_from;
    };
    EXPECT_NE(apart_by(0.2f), 500);
    EXPECT_EQ(apart_by(0.35f), 500);
}

// FP32's sums are allowed 64 units in the last place, and these weights differ by exactly that.
TEST_F(ProbeComparisonTest, AllowsTheFirstWeightsWhatRoundingAllows) {
    find(b_, "fc1", "weight").values.assign(64, 1.0f);
    find(a_, "fc1", "weight").values.assign(64, 1.0f - 0x1p-17f);
    const ProbeComparison edge = compared();
    EXPECT_FALSE(edge.parting) << parting_sentence(edge);
    find(a_, "fc1", "weight").values.assign(64, 1.0f - 0x1.1p-17f);
    const ProbeComparison beyond = compared();
    ASSERT_TRUE(beyond.parting);
    EXPECT_EQ(beyond.parting->why, Why::weights);
}

TEST_F(ProbeComparisonTest, NamesStepsThatOnlyOneOfThemHasSkipped) {
    const std::vector<Planted> good = b_;
    disturb("fc1", "output", 0.1f);
    probes::plant(folder_ / "a", {{1, a_}, {4, a_}});
    const auto later = [&](int skips) {
        probes::plant(folder_ / "b", {{1, good}, {4, b_, {{"skips", skips}}}});
        return compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b"));
    };
    EXPECT_EQ(later(0).parting->why, Why::rounding);
    const ProbeComparison c = later(1);
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->why, Why::skips);
    EXPECT_NE(parting_sentence(c).find("had skipped no step in a and 1 step in b"), std::string::npos)
        << parting_sentence(c);
    b_ = good;
    EXPECT_FALSE(later(1).parting) << "a skip by itself is no difference";
    find(b_, "act", "output").values[5] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(later(1).parting->why, Why::not_finite);
}

TEST_F(ProbeComparisonTest, AllowsGradientsWhatGatesThatDecideOtherwiseCost) {
    disturb("act", "output", 1e-5f);  // within the rounding of FP32's sums
    disturb("fc1", "output_grad", 2e-3f);
    EXPECT_FALSE(compared().parting);
    // Each gate on the way takes its share.
    for (std::vector<Planted>* side : {&a_, &b_})
        for (int i = 0; i < 8; ++i)
            side->insert(side->begin() + 5, {"act" + std::to_string(i), "ReLU", "output", "0", "float32",
                                             find(*side, "act", "output").values});
    disturb("fc1", "output_grad", 6e-3f);
    EXPECT_FALSE(compared().parting);
    disturb("fc1", "output_grad", 2e-2f);
    const ProbeComparison c = compared();
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->module, "fc1");
    EXPECT_EQ(c.parting->direction, Direction::backward);
}

// One value of act changes its sign, and the gradient there is by far the largest.
TEST_F(ProbeComparisonTest, AllowsGradientsThatAGateIsSeenToLose) {
    make_bf16();
    for (std::vector<Planted>* side : {&a_, &b_}) find(*side, "act", "output_grad").values[9] = 5e-3f;
    find(a_, "fc1", "output_grad").values[9] = 5e-3f, find(b_, "fc1", "output_grad").values[9] = 0;
    ASSERT_TRUE(compared({{"autocast", "bfloat16"}}).parting) << "act decides alike in both";
    find(a_, "act", "output").values[9] = 1e-3f, find(b_, "act", "output").values[9] = 0;
    const ProbeComparison c = compared({{"autocast", "bfloat16"}});
    EXPECT_FALSE(c.parting) << parting_sentence(c);
}

// Of 64 gradients a share of 0.4% is none, or one that weighs far more than that.
TEST_F(ProbeComparisonTest, AllowsGradientsWhatAFewValuesOfASampleMayWeigh) {
    make_bf16();
    disturb("fc1", "output_grad", 0.15f);
    EXPECT_FALSE(compared({{"autocast", "bfloat16"}}).parting);
    disturb("fc1", "output_grad", 0.4f);
    EXPECT_TRUE(compared({{"autocast", "bfloat16"}}).parting);
}

TEST_F(ProbeComparisonTest, ComparesUpToAModuleThatARouterHasChosenOtherwise) {
    make_bf16();
    for (Planted& t : b_)
        if (t.module == "act") t.calls = 2, t.values.insert(t.values.end(), t.values.begin(), t.values.end());
    disturb("fc2", "output", 1.0f);
    const ProbeComparison c = compared({{"autocast", "bfloat16"}});
    EXPECT_FALSE(c.parting) << parting_sentence(c);
    ASSERT_EQ(c.other_calls.size(), 1u);
    EXPECT_NE(c.other_calls[0].find("act ran 1 times in a and 2 in b"), std::string::npos) << c.other_calls[0];
    EXPECT_EQ(c.rows.size(), 1u);
    disturb("fc1", "output", 1.0f);
    EXPECT_TRUE(compared({{"autocast", "bfloat16"}}).parting) << "what comes before is compared";
}

TEST_F(ProbeComparisonTest, SuspectsTf32OnlyWhereAGpuMakesAProduct) {
    const std::vector<Planted> good = b_;
    const auto suspected = [&](const std::string& module, const std::string& kind, bool on_cuda) {
        b_ = good;
        disturb(module, kind, 1e-3f);
        ProbeComparison c = compared();
        EXPECT_FALSE(c.on_cuda) << "the probes say cpu";
        EXPECT_TRUE(c.parting);
        c.on_cuda = on_cuda;
        return parting_sentence(c).find("TF32") != std::string::npos;
    };
    EXPECT_TRUE(suspected("fc1", "output", true));
    EXPECT_FALSE(suspected("fc1", "output", false));
    EXPECT_FALSE(suspected("act", "output", true)) << "an activation multiplies no matrices";
    EXPECT_TRUE(suspected("fc2", "input", true)) << "code between modules may";
    EXPECT_TRUE(suspected("act", "output_grad", true)) << "made by fc2";
}

TEST_F(ProbeComparisonTest, GoesOnToTheStepWhereTheyPart) {
    probes::plant(folder_ / "a", {{1, a_}, {500, a_}, {1000, a_}, {2000, a_}});
    const std::vector<Planted> good = b_;
    disturb("fc1", "output", 0.5f);
    probes::plant(folder_ / "b", {{1, good}, {1000, b_}, {2000, b_}});
    const ProbeComparison c = compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b"));
    EXPECT_EQ(c.steps, (std::vector<std::int64_t>{1, 1000}));
    ASSERT_TRUE(c.parting);
    EXPECT_EQ(c.parting->step, 1000);
}

TEST_F(ProbeComparisonTest, RefusesWhatHasNothingInCommon) {
    probes::plant(folder_ / "a", {{1, a_}});
    probes::plant(folder_ / "b", {{2, b_}});
    EXPECT_THROW(compare_probes(open_probe(folder_ / "a"), open_probe(folder_ / "b")), UsageError);
    for (Planted& t : b_) t.module = "other." + t.module;
    EXPECT_THROW(compared(), UsageError);
}

}  // namespace
}  // namespace invar
