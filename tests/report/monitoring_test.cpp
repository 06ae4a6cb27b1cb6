#include "invar/report/monitoring.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "invar/report/html.h"
#include "invar/report/json.h"
#include "invar/report/markdown.h"
#include "tests/report/made_up.h"

namespace invar {
namespace {

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

MonitorRow row_of(const Validation& v, const std::string& begins) {
    for (const MonitorRow& row : monitoring_rows(v, v.candidates[0], made_up_context(v)))
        if (row.what.starts_with(begins)) return row;
    ADD_FAILURE() << "no row " << begins;
    return {};
}

// A run that was looked at by parameter.
Validation watched() {
    Validation v = made_up();
    v.baseline.runs[0].gradients_watched = v.candidates[0].runs[0].gradients_watched = true;
    return v;
}

TEST(Monitoring, FindsNothingToSayOfTwoRunsThatAgree) {
    const Validation v = watched();
    for (const MonitorRow& row : monitoring_rows(v, v.candidates[0], made_up_context(v)))
        EXPECT_EQ(row.met, true) << row.what << ": " << row.candidate;
    EXPECT_EQ(row_of(v, "NaN/Inf").candidate, "none");
    EXPECT_EQ(row_of(v, "Steps skipped").candidate, "0 of 100");
    EXPECT_EQ(row_of(v, "Large gradient norms, above 100").candidate, "0 of 100 logged");
    EXPECT_EQ(row_of(v, "Small gradients, norm below 1e-06").candidate, "none");
    EXPECT_EQ(row_of(v, "Largest setback of val_accuracy").candidate, "0.00%");
    EXPECT_EQ(row_of(v, "Loss scale").candidate, "32768 to 65536");
}

TEST(Monitoring, SeesEachThingThatGoesWrong) {
    const auto with = [](const char* begins, auto change) {
        Validation v = watched();
        change(v.candidates[0].runs[0]);
        decide(v);
        const MonitorRow row = row_of(v, begins);
        EXPECT_EQ(row.met, false) << begins << ": " << row.candidate;
        return row.candidate;
    };
    EXPECT_EQ(with("NaN/Inf", [](RunRecord& run) { run.not_finite = "loss is NaN at step 3"; }),
              "loss is NaN at step 3");
    EXPECT_EQ(with("Steps skipped", [](RunRecord& run) { run.skipped = 2; }), "2 of 100");
    with("Gradient norm, median", [](RunRecord& run) {
        for (double& norm : run.grad_norm.y) norm *= 2.5;
    });
    with("Gradient norm, median", [](RunRecord& run) {
        for (double& norm : run.grad_norm.y) norm /= 2.5;
    });
    EXPECT_EQ(with("Gradient norm, largest", [](RunRecord& run) { run.max_grad_norm = 4.5; }), "4.5000");
    EXPECT_EQ(with("Large gradient norms", [](RunRecord& run) { run.grad_norm.y[7] = 101; }), "1 of 100 logged");
    EXPECT_EQ(with("Small gradients",
                   [](RunRecord& run) {
                       run.small_gradients = {{"decoder.thresh.6.weight", 3e-8}};
                   }),
              "decoder.thresh.6.weight = 3e-08");
    EXPECT_EQ(with("Largest setback", [](RunRecord& run) { run.metric_curve.y[2] = 0.5; }).back(), '%');
    EXPECT_EQ(with("Loss scale", [](RunRecord& run) { run.scale.y[50] = 0.5; }), "0.5 to 65536");
}

TEST(Monitoring, MindsOnlySmallGradientsThatTheBaselineHasNot) {
    Validation v = watched();
    const std::vector<std::pair<std::string, double>> small = {{"a", 1e-9}, {"b", 1e-9}, {"c", 1e-9}, {"d", 1e-9}};
    v.baseline.runs[0].small_gradients = small;
    v.candidates[0].runs[0].small_gradients = small;
    const MonitorRow row = row_of(v, "Small gradients");
    EXPECT_EQ(row.met, true) << "a bias before a norm has none in any precision";
    EXPECT_EQ(row.candidate, "a = 1e-09, b = 1e-09, c = 1e-09 and 1 more");
}

TEST(Monitoring, TakesTheLimitsOfTheRun) {
    Validation v = watched();
    v.options.base.monitor.grad_norm_high = 1.5;
    EXPECT_EQ(row_of(v, "Large gradient norms, above 1.5").met, false);
}

TEST(Monitoring, SaysWhatTheLogsDoNotHold) {
    Validation v = made_up();
    RunRecord& run = v.candidates[0].runs[0];
    run.grad_norm = {}, run.scale = {}, run.max_grad_norm = run.skipped = kUnknown;
    decide(v);
    for (const char* what : {"Steps skipped", "Gradient norm, median", "Large gradient norms", "Small gradients"})
        EXPECT_EQ(row_of(v, what).met, std::nullopt) << what;
    EXPECT_TRUE(has(line_with(markdown_report(v, made_up_context(v)), "| Small gradients"), "not measured"));
    v.candidates[0].runs.clear();
    EXPECT_TRUE(monitoring_rows(v, v.candidates[0], made_up_context(v)).empty());
}

TEST(Monitoring, StandsInEveryReport) {
    const Validation v = watched();
    const ReportContext context = made_up_context(v);
    const std::string page = html_report(v, context), text = markdown_report(v, context);
    const auto json = nlohmann::json::parse(json_report(v, context)).at("candidates")[0].at("monitoring");
    for (const MonitorRow& row : monitoring_rows(v, v.candidates[0], context)) {
        EXPECT_TRUE(has(page, ">" + row.what + "<")) << row.what;
        EXPECT_TRUE(has(text, "| " + row.what)) << row.what;
    }
    EXPECT_EQ(json.size(), 8u);
    EXPECT_EQ(json[0].at("met"), true);
}

TEST(Approval, IsLeftToBeSignedWhateverTheVerdict) {
    const Validation good = made_up(), bad = made_up(0.85);
    const std::string text = markdown_report(good, made_up_context(good)),
                      failed = markdown_report(bad, made_up_context(bad));
    EXPECT_TRUE(has(text, "- [ ] 16-mixed approved for production use (PASS)\n\nSigned off by: ___")) << text;
    EXPECT_TRUE(has(text, "\nDate: ___"));
    EXPECT_TRUE(has(text, "Validated for production use"));
    EXPECT_TRUE(has(failed, "- [ ] 16-mixed approved for production use (FAIL)"));
    EXPECT_TRUE(has(failed, "Not recommended"));
    EXPECT_TRUE(has(html_report(good, made_up_context(good)), "Signed off by: ___"));
    const auto approval = nlohmann::json::parse(json_report(good, made_up_context(good))).at("approval");
    EXPECT_TRUE(approval.at("signed_off_by").is_null());
}

}  // namespace
}  // namespace invar
