// How often a difference of exactly the margin passes: made-up accuracies on few and many samples, judged as `invar
// validate` judges. A row for each number of samples and seeds, its worst case over accuracies and spreads.
#include <fmt/format.h>

#include <cstdlib>

#include "invar/validate/statistics.h"
#include "tests/validate/made_up_accuracies.h"

using namespace invar;

namespace {

struct Worst {
    double share = 0.0, accuracy = 0.0, spread = 0.0;
    void see(double found, const MadeUpRuns& runs) {
        if (found > share) *this = {found, runs.accuracy, runs.spread};
    }
    std::string str() const {
        return share == 0 ? "0.0%" : fmt::format("{:.1f}% ({:g}%, {:g})", 100 * share, 100 * accuracy, 100 * spread);
    }
};

bool passes(const MadeUpArms& arms, std::int64_t samples) {
    return test_equivalence(arms.baseline, arms.candidate, "accuracy", {}, samples).verdict == Verdict::pass;
}

}  // namespace

int main(int argc, char** argv) {
    const int trials = argc > 1 ? std::atoi(argv[1]) : 2000;
    const bool same_errors = argc > 2;
    std::mt19937_64 random(14);
    fmt::print("| samples | seeds | by the spread alone | with the samples |\n|---|---|---|---|\n");
    for (const std::int64_t samples : {50, 100, 200, 1000, 10000})
        for (const int seeds : {2, 3, 4, 8}) {
            Worst before, now;
            for (const double accuracy : {0.6, 0.8, 0.9, 0.95, 0.99})
                for (const double spread : {0.0, 0.001, 0.005, 0.01, 0.02}) {
                    const MadeUpRuns runs{samples, seeds, accuracy, 0.01, spread, same_errors};
                    int passed_before = 0, passed = 0;
                    for (int i = 0; i < trials; ++i) {
                        const MadeUpArms arms = make_up(runs, random);
                        const bool by_spread = passes(arms, 0);
                        passed_before += by_spread;
                        passed += by_spread && passes(arms, samples);  // the interval is never the narrower one
                    }
                    before.see(double(passed_before) / trials, runs);
                    now.see(double(passed) / trials, runs);
                }
            fmt::print("| {} | {} | {} | {} |\n", samples, seeds, before.str(), now.str());
            std::fflush(stdout);
        }
}
