// The HTML report: whole, self-contained, safe against what names may hold, and, where there is a browser, seen.
#include "invar/report/html.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/report/diagnosis.h"
#include "invar/report/json.h"
#include "invar/report/pictures.h"
#include "invar/report/plot.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up.h"
#include "tests/report/png.h"

namespace invar {
namespace {

std::string page_of(const Validation& v) {
    return html_report(v, made_up_context(v));
}

// Opening and closing tags in order; those that never close left out.
void expect_balanced(const std::string& html) {
    std::vector<std::string> open;
    const std::regex tag("<(/?)([a-z0-9]+)([^<>]*)>");
    for (auto m = std::sregex_iterator(html.begin(), html.end(), tag); m != std::sregex_iterator(); ++m) {
        const std::string name = (*m)[2], rest = (*m)[3];
        if (name == "meta" || rest.ends_with('/')) continue;
        if ((*m)[1].length() == 0) {
            open.push_back(name);
            continue;
        }
        ASSERT_FALSE(open.empty()) << "</" << name << "> closes nothing";
        ASSERT_EQ(open.back(), name) << "at " << html.substr(std::size_t(m->position()), 80);
        open.pop_back();
    }
    EXPECT_TRUE(open.empty());
}

TEST(HtmlReport, HoldsPlotsTablesChecklistVerdictAndTheWayBack) {
    const std::string html = page_of(made_up());
    EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
    expect_balanced(html);
    for (const char* part : {">loss<", ">grad_norm<", ">scale<", ">val_accuracy<", "Memory: activations",
                             "-50.00%", "19m 39s", "Verify val_accuracy difference &lt; 1%", "badge pass",
                             "trainer.precision=32-true", "One run an arm cannot tell"})
        EXPECT_TRUE(has(html, part)) << part;
    for (const char* line : {"line line0", "line line1"}) EXPECT_TRUE(has(html, line));
}

TEST(HtmlReport, NeedsNothingButItself) {
    const std::string html = page_of(made_up(0.8850, 1004, 3));
    for (const char* outside : {"http:", "https:", "<script", "<link", "<img", "@import", "url(", " src="})
        EXPECT_FALSE(has(html, outside)) << outside;
    EXPECT_TRUE(has(html, "prefers-color-scheme: dark"));
    EXPECT_TRUE(has(html, "Seed by seed"));
}

TEST(HtmlReport, EscapesWhatNamesMayHold) {
    Validation v = made_up();
    v.options.base.exp_name = "<script>alert('x')</script>";
    v.candidates[0].name = "a\"><img src=x onerror=y>";
    v.metric = "m<b>&";
    decide(v);
    const std::string html = page_of(v);
    EXPECT_FALSE(has(html, "<script>") || has(html, "<img") || has(html, "m<b>"));
    EXPECT_TRUE(has(html, "m&lt;b&gt;&amp;"));
    expect_balanced(html);
}

TEST(HtmlReport, TellsOfRunsThatFailedAndOfWhatIsNotInTheLogs) {
    Validation v = made_up();
    v.candidates[0] = {};
    v.candidates[0].name = "16-mixed";
    v.candidates[0].failure = "training stopped";
    decide(v);
    std::string html = page_of(v);
    expect_balanced(html);
    EXPECT_TRUE(has(html, "no run finished") && has(html, "badge fail"));
    v = made_up();
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) arm->runs[0].scale = arm->runs[0].grad_norm = {};
    html = page_of(v);
    EXPECT_TRUE(has(html, "not in the logs"));
    EXPECT_FALSE(has(html, "nan"));
}

TEST(HtmlReport, ShowsNoLossScaleOfRunsThatHaveNone) {
    Validation v = made_up();
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) arm->runs[0].scale = {};
    EXPECT_FALSE(has(page_of(v), "Loss scale"));
}

TEST(HtmlReport, SetsCommandsInProseAsCode) {
    const std::string html = page_of(made_up());
    EXPECT_TRUE(has(html, "(<code>--seeds 3</code>)"));
    EXPECT_FALSE(has(html, "`"));
}

TEST(HtmlReport, ComparesNothingWithARunThatFailed) {
    Validation v = made_up(0.1);
    v.candidates[0].runs[0].not_finite = "loss is NaN at step 3";
    decide(v);
    EXPECT_FALSE(has(page_of(v), "-88.")) << "the checklist says that there is nothing to compare";
}

TEST(HtmlReport, ShowsNoSpeedInGreenBesideAFailOrOnADisturbedMachine) {
    const std::string fast = "<td class=\"good\">-91.52%</td>";  // of 1179 s
    EXPECT_TRUE(has(page_of(made_up(0.8850, 100)), fast)) << page_of(made_up(0.8850, 100));
    const std::string failed = page_of(made_up(0.5, 100));
    EXPECT_TRUE(has(failed, "<td>-91.52%</td>") && !has(failed, fast)) << failed;
    Validation v = made_up(0.8850, 100);
    v.baseline.runs[0].waited_share = 0.9;
    decide(v);
    const std::string disturbed = page_of(v);
    EXPECT_FALSE(has(disturbed, "-91.52%") || has(disturbed, "11.79x")) << disturbed;
    EXPECT_TRUE(has(disturbed, "<td>disturbed</td>") && has(disturbed, "Speed was disturbed and is not judged"));
}

TEST(HtmlReport, SaysThatABaselineThatLearnedNothingIsInvalid) {
    Validation v = made_up();
    v.baseline.runs[0].not_learned = "its loss did not fall";
    decide(v);
    const std::string html = page_of(v);
    EXPECT_TRUE(has(html, "<span class=\"badge invalid\">INVALID</span> the baseline gives nothing")) << html;
    EXPECT_TRUE(has(html, "its loss did not fall"));
    EXPECT_FALSE(has(html, ">PASS<") || has(html, ">FAIL<"));
    const auto json = nlohmann::json::parse(json_report(v, made_up_context(v)));
    EXPECT_EQ(json.at("verdict"), "INVALID");
    EXPECT_EQ(json.at("candidates").at(0).at("verdict"), "INVALID");
    EXPECT_EQ(json.at("baseline").at("runs").at(0).at("not_learned"), "its loss did not fall");
}

TEST(JsonReport, IsTheSameForPrograms) {
    const Validation v = made_up(0.8850, 1004, 3);
    const auto json = nlohmann::json::parse(json_report(v, made_up_context(v)));
    EXPECT_EQ(json.at("verdict"), "PASS");
    EXPECT_EQ(json.at("baseline").at("runs").size(), 3u);
    const auto& candidate = json.at("candidates").at(0);
    EXPECT_TRUE(candidate.at("statistics").at("paired"));
    EXPECT_LT(candidate.at("statistics").at("interval_90").at(1), 0.01);
    EXPECT_EQ(candidate.at("checklist").at(0).at("state"), "done");
    EXPECT_EQ(candidate.at("peak_bytes").at("total"), 3 << 20);
    Validation one = made_up();
    one.candidates[0].runs[0].val_loss = NAN;
    decide(one);
    const auto bare = nlohmann::json::parse(json_report(one, made_up_context(one)));
    EXPECT_TRUE(bare.at("candidates").at(0).at("val_loss").is_null());
    EXPECT_TRUE(bare.at("candidates").at(0).at("statistics").is_null());
}

TEST(WriteReports, WritesAllThreeWholeOrNotAtAll) {
    const Scratch scratch;
    const Validation v = made_up();
    const ReportFiles files = write_reports(scratch / "new/folder", v, made_up_context(v));
    EXPECT_EQ(files.html, scratch / "new/folder/report.html");
    for (const auto& file : {files.markdown, files.json, files.html}) EXPECT_GT(read_file(file).size(), 1000u);
    put(scratch / "file", "in the way");
    EXPECT_THROW(write_reports(scratch / "file", v, made_up_context(v)), IoError);
}

// The page as a browser shows it: INVAR_SCREENSHOTS=DIR keeps the pictures to look at.
TEST(HtmlReport, ShowsItsPlotsInABrowserLightAndDark) {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no chromium here";
    const Scratch scratch;
    Validation v = made_up(0.8850, 1004, 3);
    v.candidates.push_back(v.candidates[0]);
    v.candidates[1].name = "bf16-mixed";
    v.candidates[1].runs[0].loss.y[50] = NAN;
    for (RunRecord& run : v.candidates[1].runs) run.metric -= 0.008, run.scale = {};
    decide(v);
    write_reports(scratch.path(), v, made_up_context(v));
    const char* keep = std::getenv("INVAR_SCREENSHOTS");
    const std::string folder = keep != nullptr ? keep : scratch.path().string();
    for (const bool dark : {false, true}) {
        const std::string png = folder + (dark ? "/dark.png" : "/light.png");
        const std::string command = fmt::format(
            "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars "
            "--enable-logging=stderr --user-data-dir={0}/profile {1} --window-size=1200,2900 --screenshot={2} "
            "file://{0}/report.html >{0}/log "
            "2>&1",
            scratch.path().string(), dark ? "--blink-settings=preferredColorScheme=0" : "", png);
        ASSERT_EQ(std::system(command.c_str()), 0) << read_file(scratch / "log");
        const Picture picture = read_png(png);
        ASSERT_EQ(picture.width, 1200);
        ASSERT_EQ(picture.pixels.size(), 1200u * 2900u);
        EXPECT_GT(picture.count(dark ? 0x12161c : 0xffffff), 1'000'000) << "the background";
        const std::uint32_t first = dark ? 0xff9d5c : 0xc2410c, second = dark ? 0x6cb0ff : 0x1d5fd0;
        EXPECT_EQ(picture.tall_stretches(second, 100, 600), 2) << "training loss and gradient norm on the left";
        EXPECT_EQ(picture.tall_stretches(second, 600, 1200), 1) << "val_accuracy on the right";
        EXPECT_GT(picture.widest(first), 200) << "the loss scale of the first candidate";
        EXPECT_GT(picture.count(dark ? 0x4ac26b : 0x1a7f37), 100) << "ticked boxes";
        EXPECT_FALSE(has(read_file(scratch / "log"), "CONSOLE")) << read_file(scratch / "log");
    }
}

// By how many pixels what stands in the widest of these boxes is wider than it, on a page of 1200 pixels.
int hidden_width(const std::string& html, const std::string& boxes, const Scratch& scratch) {
    const std::string script = fmt::format(
        "<script>document.title = 'hidden ' + Math.max(...[...document.querySelectorAll('{}')].map(box => "
        "box.scrollWidth - box.clientWidth))</script></body>",
        boxes);
    std::string page = html;
    page.replace(page.find("</body>"), 7, script);
    put(scratch / "page.html", page);
    const std::string command = fmt::format(
        "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--user-data-dir={0}/profile "
        "--window-size=1200,2000 --dump-dom file://{0}/page.html >{0}/dom 2>{0}/log",
        scratch.path().string());
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(scratch / "log");
    const std::string dom = read_file(scratch / "dom");
    const std::size_t at = dom.find("hidden ");
    EXPECT_NE(at, dom.npos) << dom.substr(0, 400);
    return at == dom.npos ? -1 : std::atoi(dom.c_str() + at + 7);
}

TEST(HtmlReport, HidesNothingAtItsRightInABrowser) {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no chromium here";
    const Scratch scratch;
    Validation v = made_up();
    std::vector<std::string> small;
    for (int i = 0; i < 12; ++i) small.push_back(fmt::format("backbone.layer{}.0.downsample.1.weight", i));
    for (Arm* arm : {&v.baseline, &v.candidates[0]})
        for (RunRecord& run : arm->runs) {
            run.gradients_watched = true;
            for (const std::string& name : small) run.small_gradients.emplace_back(name, 1e-9);
        }
    decide(v);
    EXPECT_EQ(hidden_width(page_of(v), ".wide", scratch), 0);
    // A heat map with as many powers of two as it ever shows.
    Diagnosis diagnosis;
    diagnosis.steps = 1;
    LayerPassages& layer = diagnosis.layers.emplace_back();
    layer.module = "backbone.layer4.0.downsample.0";
    for (int e = -60; e < 20; ++e) layer.forward.all.exponents[std::size_t(e + 127)] = 1;
    layer.forward.all.values = 80;
    EXPECT_EQ(hidden_width(html_diagnosis(diagnosis, "wide"), ".heatmap", scratch), 0);
}

TEST(HtmlReport, ShowsThePicturesThatRunsLeftSideBySide) {
    const Scratch scratch;
    Validation v = made_up();
    EXPECT_FALSE(has(page_of(v), "<img") || has(page_of(v), ">Pictures<"));
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) {
        arm->runs[0].folder = scratch / arm->name;
        std::filesystem::create_directories(arm->runs[0].folder / "pictures");
        put(arm->runs[0].folder / "pictures/1.jpg", arm->name + " 1");
    }
    put(v.baseline.runs[0].folder / "pictures/2.jpg", "only here");
    const std::string html = page_of(v);
    expect_balanced(html);
    EXPECT_TRUE(has(html, "<h2>Pictures</h2>"));
    const std::size_t first = html.find("data:image/jpeg;base64," + base64("32-true 1"));
    const std::size_t second = html.find("data:image/jpeg;base64," + base64("16-mixed 1"));
    ASSERT_TRUE(first != html.npos && second != html.npos);
    EXPECT_LT(first, second);
    EXPECT_LT(second, html.find(base64("only here")));
    for (const char* outside : {"http:", "https:", "<script", "<link", "url("}) EXPECT_FALSE(has(html, outside));
}

TEST(HtmlReport, WritesBytesAsBase64) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foo"), "Zm9v");
    EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

}  // namespace
}  // namespace invar
