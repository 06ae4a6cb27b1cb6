// A comparison made up for the tests of reports: the first seed's own example, 0.8863 against 0.8850 and 19m 39s
// against 16m 44s, with curves to plot.
#pragma once

#include <cmath>
#include <sstream>

#include "invar/report/context.h"

namespace invar {

inline RunRecord made_up_run(const std::string& precision, double accuracy, double seconds, double activations,
                             std::int64_t seed = 0) {
    RunRecord run;
    run.name = "runs/demo/" + precision;
    run.precision = precision;
    run.seed = seed;
    run.metric = accuracy;
    run.val_loss = 0.5, run.train_loss = 0.25;
    run.train_seconds = seconds, run.samples_per_s = 1e4 / seconds;
    run.max_grad_norm = 2.0, run.final_scale = 65536;
    run.steps = 100, run.epochs = 1, run.skipped = 0;
    run.memory = {{"activations", activations}, {"weights", 1 << 20}, {"total", activations + (1 << 20)}};
    const bool scaled = precision != "32-true";
    for (int step = 1; step <= 100; ++step) {
        const double wave = 0.03 * std::sin(step * (scaled ? 1.9 : 1.7) + double(seed));
        const auto add = [&](Series& series, double y) {
            series.x.push_back(step);
            series.y.push_back(y);
        };
        add(run.loss, 2.3 * std::exp(-step / 30.0) + 0.25 + wave);
        add(run.grad_norm, 2.0 * std::exp(-step / 40.0) + 0.1 + wave);
        add(run.scale, scaled ? (step < 20 ? 65536 : step < 60 ? 32768 : 65536) : 1);
        if (step % 20 == 0) add(run.metric_curve, accuracy - 0.3 * std::exp(-step / 25.0));
    }
    return run;
}

inline Validation made_up(double accuracy = 0.8850, double seconds = 1004, int seeds = 1) {
    Validation v;
    v.folder = "runs/demo";
    v.options.metric = "val_accuracy";
    v.metric = v.options.metric;
    v.options.candidates = {"16-mixed"};
    v.options.base.exp_name = "demo";
    v.options.seeds = seeds;
    v.baseline.name = "32-true";
    v.candidates.emplace_back().name = "16-mixed";
    for (int seed = 0; seed < seeds; ++seed) {
        const double effect = 0.001 * (seed % 3), own = 0.0004 * (seed % 2);
        v.baseline.runs.push_back(made_up_run("32-true", 0.8863 + effect, 1179, 4 << 20, seed));
        v.candidates[0].runs.push_back(made_up_run("16-mixed", accuracy + effect + own, seconds, 2 << 20, seed));
    }
    decide(v);
    return v;
}

inline ReportContext made_up_context(const Validation& v) {
    return validation_context(v, "fashion_mnist", {"trainer.max_epochs=3"});
}

inline std::string line_with(const std::string& text, const std::string& part) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.find(part) != line.npos) return line;
    return "";
}

}  // namespace invar
