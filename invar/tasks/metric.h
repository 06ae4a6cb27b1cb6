// Metric: a figure that a task is judged by. What a batch adds to it are plain sums, so that batches, and processes,
// add up by addition.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "invar/dist/communicator.h"

namespace invar {

enum class Better : std::uint8_t { higher, lower };

struct Metric {
    enum class Print : std::uint8_t { number, percent };

    std::string name;  // "accuracy"; a run logs it as val_accuracy
    Better better = Better::higher;
    Print print = Print::number;
    // What guessing gives, where that is known: a model that has learned does better.
    std::optional<double> chance = {};
    int sums = 2;
    // The figure, from the sums over all batches; by default the first over the second.
    double (*value)(std::span<const double> sums) = ratio;

    static double ratio(std::span<const double> sums) { return sums[1] != 0 ? sums[0] / sums[1] : 0.0; }
    // "87.00%" or "0.3594".
    std::string str(double value) const;
};

struct Measured {
    Metric metric;
    double value = 0.0;
};

// Adds up what batches bring and turns it into figures.
class MetricSums {
  public:
    explicit MetricSums(std::vector<Metric> metrics);
    // All metrics' sums of one batch, one after the other.
    void add(std::span<const double> sums);
    // What other ranks have added up, who each had samples of their own.
    void add_others(Communicator& ranks);
    std::vector<Measured> values() const;

  private:
    std::vector<Metric> metrics_;
    std::vector<double> sums_;
};

}  // namespace invar
