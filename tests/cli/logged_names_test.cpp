// One name for each figure and one way of counting epochs: what a run prints, its metrics.jsonl, its events, its
// summary and the report that is made of it speak of the same things.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tests/cli/program.h"
#include "tests/io/event_reader.h"

namespace invar::cli {
namespace {

using Json = nlohmann::json;

class LoggedNames : public CliTest {
  protected:
    // Two epochs of ten steps in FP16, the first one skipped, with a validation in the middle of each.
    void train(const std::string& name, const Words& more = {}) {
        Words words =
            small({"trainer.max_epochs=2", "trainer.val_check_interval=5", "trainer.gradient_clip_val=0.5",
                   "--mixed_precision", "fp16", "--grad_scaler_init", "1e30", "--grad_scaler_backoff", "1e-26",
                   "exp_name=" + name, "monitor.memory_every_n_steps=5", "monitor.gradients_every_n_steps=5"});
        words.insert(words.end(), more.begin(), more.end());
        const Result result = invar(words);
        ASSERT_EQ(result.code, 0) << result.out << result.err;
        printed_ = result.out;
        for (const std::string& line : lines("runs/" + name + "/metrics.jsonl")) logged_.push_back(Json::parse(line));
    }
    // What the log has of a step under this name.
    std::optional<Json> at(std::int64_t step, const std::string& name) const {
        for (const Json& line : logged_)
            if (line.at("step") == step && line.contains(name)) return line.at(name);
        return std::nullopt;
    }
    // The names of numbers in the log; those by purpose or module with a slash between.
    std::set<std::string> names() const {
        std::set<std::string> all;
        for (const Json& line : logged_) {
            if (line.contains("alert")) continue;  // which have one value each, of whatever raised them
            for (const auto& [key, value] : line.items()) {
                if (value.is_number()) all.insert(key);
                if (value.is_object())
                    for (const auto& [below, each] : value.items()) all.insert(key + "/" + below);
            }
        }
        all.erase("step");  // that is what the others are told by
        return all;
    }
    // "loss 0.5" of a line whose parts stand two blanks apart.
    static std::map<std::string, std::string> parts_of(const std::string& line) {
        std::map<std::string, std::string> parts;
        for (std::size_t begin = 0, end = 0; begin < line.size(); begin = line.find_first_not_of(' ', end)) {
            end = line.find("  ", begin);
            const std::string part = line.substr(begin, end - begin);
            if (const std::size_t blank = part.find(' '); blank != part.npos)
                parts[part.substr(0, blank)] = part.substr(blank + 1);
            if (end == line.npos) break;
        }
        return parts;
    }

    std::string printed_;
    std::vector<Json> logged_;
};

TEST_F(LoggedNames, AreThoseOfTheEvents) {
    train("run");
    const auto events = shown_by_tensorboard(folder_ / "runs/run");
    const std::set<std::string> names = this->names();
    for (const char* name :
         {"loss", "lr", "grad_norm", "grad_norm_clipped", "scale", "growth_tracker", "skipped", "samples_per_s",
          "host_bytes", "peak_bytes/total", "live_bytes/total", "epoch", "val_loss", "val_accuracy"})
        EXPECT_TRUE(events.contains(name) && names.contains(name)) << name;
    for (const auto& [tag, points] : events)
        if (!tag.starts_with("alerts/")) {
            EXPECT_TRUE(names.contains(tag)) << tag << " is no name of metrics.jsonl";
        }
    for (const std::string& name : names)
        if (!has(name, "_bytes/")) {
            EXPECT_TRUE(events.contains(name)) << name << " is no tag of the events";
        }
    for (const char* name : {"loss", "scale", "epoch", "grad_norm", "grad_norm_clipped", "val_accuracy"})
        for (const auto& [step, value] : events.at(name)) {
            const std::optional<Json> logged = at(step, name);
            ASSERT_TRUE(logged) << name << " of step " << step;
            if (logged->is_number()) {
                EXPECT_EQ(float(value), logged->get<float>()) << name << " of step " << step;
            }
        }
}

TEST_F(LoggedNames, AreThoseOfTheConsole) {
    train("run");
    int steps = 0, validations = 0;
    std::istringstream text(printed_);
    for (std::string line; std::getline(text, line);) {
        const std::map<std::string, std::string> parts = parts_of(line);
        const bool step = line.starts_with("step "), validation = line.starts_with("epoch ");
        if (!step && !validation) continue;
        (step ? steps : validations) += 1;
        const std::int64_t number = std::stoll(parts.at("step"));
        for (const auto& [name, value] : parts) {
            if (name == "step" || has(value, "samples/s")) continue;
            ASSERT_TRUE(at(number, name)) << "'" << name << "' is no name of metrics.jsonl: " << line;
        }
        EXPECT_EQ(std::stoll(parts.at("epoch")), at(number, "epoch")->get<std::int64_t>()) << line;
        EXPECT_EQ(std::stoll(parts.at("epoch")), (number + 9) / 10) << line;
        if (validation) {
            EXPECT_TRUE(parts.contains("val_loss") && parts.contains("val_accuracy")) << line;
        }
    }
    EXPECT_EQ(steps, 20);
    EXPECT_EQ(validations, 4) << printed_;
    for (const Json& line : logged_)
        EXPECT_EQ(line.at("epoch"), (line.at("step").get<int>() + 9) / 10) << line << ": the first epoch is 1";
}

TEST_F(LoggedNames, AreThoseOfTheSummaryAndOfReports) {
    train("run");
    const Json summary = Json::parse(slurp(folder_ / "runs/run/summary.json"));
    for (const char* name : {"loss", "scale", "skipped", "val_loss", "val_accuracy"})
        EXPECT_EQ(summary.at(name).get<float>(), at(20, name)->get<float>()) << name;
    for (const char* name : {"samples_per_s", "peak_bytes"}) EXPECT_TRUE(summary.contains(name)) << name;
    EXPECT_EQ(summary.at("epochs"), *at(20, "epoch"));
    const Words names = {"loss", "val_loss", "val_accuracy", "samples_per_s", "max_grad_norm"};
    train("other", {"seed=1"});
    const Result compared = invar({"compare", "runs/run", "runs/other", "--any-length", "--report", "report"});
    const std::string report = slurp(folder_ / "report/report.md");
    for (const std::string& name : names) EXPECT_TRUE(has(report, "| " + name + " ")) << name << report << compared.err;
    EXPECT_TRUE(has(report, "2 epochs")) << report;
    for (const char* other : {"train_loss", "Training loss", "skipped_steps", "final_scale"}) {
        EXPECT_FALSE(has(report, other) || summary.contains(other)) << other;
        EXPECT_FALSE(has(slurp(folder_ / "report/report.json"), other)) << other;
    }
}

TEST_F(LoggedNames, HaveTheNormBeforeAndAfterClipping) {
    train("run");
    int clipped = 0;
    for (const Json& line : logged_) {
        if (!line.contains("grad_norm_clipped") || line.at("skipped_now") == true) continue;
        const double before = line.at("grad_norm"), after = line.at("grad_norm_clipped");
        EXPECT_NEAR(after, std::min(before, 0.5), 1e-5);
        clipped += after < before;
    }
    EXPECT_GT(clipped, 0);
    ASSERT_EQ(invar(small({"exp_name=unclipped"})).code, 0);
    EXPECT_FALSE(has(slurp(folder_ / "runs/unclipped/metrics.jsonl"), "grad_norm_clipped"));
}

}  // namespace
}  // namespace invar::cli
