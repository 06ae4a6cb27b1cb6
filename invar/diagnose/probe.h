// Probe: what tools/pytorch/invar_probe.py wrote of a PyTorch run. A folder with an index and one safetensors file for
// each probed step; read with nothing believed that was not checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "invar/formats/format_tally.h"

namespace invar {

enum class ProbeKind : std::uint8_t { input, output, output_grad, weight, weight_grad };
std::string_view name_of(ProbeKind kind);

struct ProbeTensor {
    std::string module;  // "" is the model itself
    std::string class_name;
    ProbeKind kind = ProbeKind::output;
    std::string index;  // which argument, result or parameter
    Dtype dtype = Dtype::f32;
    std::vector<std::int64_t> shape;
    Tally tally;                // of all values, or reckoned from every k-th
    bool reckoned = false;      // the latter: only the largest value, and whether all are finite, is known of all
    std::int64_t calls = 1;     // of the module in the step; the sample is that of the first
    std::int64_t features = 1;  // columns of the sample
    std::vector<float> sample;
    bool finite() const { return tally.infinities + tally.nans == 0; }
};

// A line of the index.
struct ProbeLine {
    std::int64_t step = 0;
    std::string file;
    bool failed = false;
};

struct ProbeStep {
    std::int64_t step = 0;
    std::string why;                          // "every", "replayed", "after failure"
    std::optional<std::int64_t> failed_step;  // the one this follows, where that is why it was kept
    std::optional<double> loss;
    double grad_norm = 0.0, scale = 1.0;
    std::int64_t skips = 0;  // steps that the scaler had skipped by then
    bool skipped = false, failed = false;
    std::optional<Dtype> autocast;
    std::vector<ProbeTensor> tensors;  // in the order in which they came about; weights and their gradients last

    const ProbeTensor* find(const ProbeTensor& like) const;
};

struct Probe {
    std::filesystem::path folder;
    std::string torch, device, card, model;
    std::vector<std::pair<std::string, std::string>> modules;  // names and classes
    std::vector<ProbeLine> lines;                              // by step

    ProbeStep load(const ProbeLine& line) const;
    // "probe (PyTorch 2.4, MyModel on cuda)"
    std::string title() const;
};

// Whether it is a folder with an index of that name, whatever that holds.
bool is_probe(const std::filesystem::path& folder);
// Throws IoError, one line that says what to do, where it is not one that can be read.
Probe open_probe(const std::filesystem::path& folder);

}  // namespace invar
