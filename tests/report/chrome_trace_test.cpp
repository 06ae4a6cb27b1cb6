// The trace of a profile is JSON that trace viewers read, whatever names are in it.
#include "invar/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace invar {
namespace {

TimedOp op(StepPart part, const std::string& name, double start, double seconds) {
    TimedOp made;
    made.part = part, made.op = name, made.start = start, made.seconds = made.own = seconds;
    return made;
}

nlohmann::json slices_of(const Profile& profile, const std::string& kind) {
    nlohmann::json found = nlohmann::json::array();
    const auto trace = nlohmann::json::parse(chrome_trace(profile, "net"));
    for (const auto& event : trace.at("traceEvents"))
        if (event.at("ph") == "X" && event.at("cat") == kind) found.push_back(event);
    return found;
}

TEST(ChromeTrace, HasOneSliceForEachOperationOnTheRowOfItsPart) {
    Profile profile;
    profile.traced = 0.010;
    profile.trace = {op(StepPart::loading, "load_batch", 0, 0.001), op(StepPart::forward, "linear", 0.001, 0.002),
                     op(StepPart::forward, "relu", 0.004, 0.001), op(StepPart::backward, "linear", 0.006, 0.003)};
    profile.trace[1].module = "fc1", profile.trace[1].dtype = Dtype::f16, profile.trace[1].flops = 12;
    const auto forward = slices_of(profile, "forward");
    ASSERT_EQ(forward.size(), 2u);
    EXPECT_EQ(forward[0].at("name"), "linear");
    EXPECT_DOUBLE_EQ(forward[0].at("ts"), 1000);
    EXPECT_DOUBLE_EQ(forward[0].at("dur"), 2000);
    EXPECT_EQ(forward[0].at("args").at("module"), "fc1");
    EXPECT_EQ(forward[0].at("args").at("dtype"), "f16");
    EXPECT_EQ(forward[0].at("args").at("flops"), 12);
    EXPECT_NE(forward[0].at("tid"), slices_of(profile, "backward")[0].at("tid"));
    // Around them the parts, and the step on a row of its own.
    const auto parts = slices_of(profile, "part");
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[1].at("tid"), forward[0].at("tid"));
    EXPECT_DOUBLE_EQ(parts[1].at("ts"), 1000);
    EXPECT_DOUBLE_EQ(parts[1].at("dur"), 4000);
    EXPECT_DOUBLE_EQ(slices_of(profile, "step")[0].at("dur"), 10000);
}

TEST(ChromeTrace, EscapesNames) {
    Profile profile;
    profile.trace = {op(StepPart::forward, "linear", 0, 1)};
    profile.trace[0].module = "a\"b\\c\n\xff";
    const auto module = slices_of(profile, "forward")[0].at("args").at("module").get<std::string>();
    EXPECT_TRUE(module.starts_with("a\"b\\c\n")) << module;
}

}  // namespace
}  // namespace invar
