// Probes as tests plant them: the files that tools/pytorch/invar_probe.py would have written of such tensors.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/io/safetensors.h"

namespace invar::probes {

namespace fs = std::filesystem;
using Values = std::vector<float>;

struct Planted {
    std::string module, class_name, kind, index = "0", dtype = "float32";
    Values values;
    std::int64_t features = 4;
    std::int64_t calls = 1;
};

struct PlantedStep {
    std::int64_t step = 1;
    std::vector<Planted> tensors;
    nlohmann::json facts = {};  // beside, or in place of, those of a good FP32 step
};

inline nlohmann::json header() {
    return {{"format", "invar-probe"},
            {"version", 1},
            {"torch", "2.4.0"},
            {"device", "cpu"},
            {"card", ""},
            {"model", "Net"},
            {"every", 500},
            {"modules", nlohmann::json::array({{"", "Net"}, {"fc1", "Linear"}, {"act", "ReLU"}, {"fc2", "Linear"}})}};
}

inline std::vector<std::int64_t> statistics_of(const Values& values) {
    std::vector<std::int64_t> row(260, 0);
    std::int64_t smallest = 0x7f800000;
    for (const float value : values) {
        const std::int64_t bits = std::bit_cast<std::uint32_t>(std::abs(value));
        ++row[std::size_t(bits >> 23)];
        row[256] += bits == 0, row[257] += bits > 0x7f800000;
        if (bits < 0x7f800000) row[258] = std::max(row[258], bits);
        if (bits > 0 && bits < 0x7f800000) smallest = std::min(smallest, bits);
    }
    row[259] = -smallest;
    return row;
}

inline Tensor table(const Values& values, std::int64_t features) {
    const Tensor t = Tensor::empty({std::int64_t(values.size()) / features, features}, Dtype::f32);
    std::copy(values.begin(), values.end(), static_cast<float*>(t.raw()));
    return t;
}

// Writes the folder; the name of each step's file is step_N.safetensors.
inline void plant(const fs::path& folder, const std::vector<PlantedStep>& steps) {
    fs::create_directories(folder);
    std::ofstream index(folder / "index.jsonl");
    index << header().dump() << "\n";
    for (const PlantedStep& planted : steps) {
        nlohmann::json facts = {{"step", planted.step}, {"why", "every"},  {"loss", 1.0},
                                {"grad_norm", 1.0},     {"scale", 1.0},    {"skipped", false},
                                {"skips", 0},           {"failed", false}, {"autocast", "none"}};
        if (planted.facts.is_object()) facts.update(planted.facts);
        TensorMap tensors;
        nlohmann::json about = nlohmann::json::array();
        const Tensor rows = Tensor::empty({std::int64_t(planted.tensors.size()), 260}, Dtype::i64);
        auto* at = static_cast<std::int64_t*>(rows.raw());
        for (const Planted& t : planted.tensors) {
            const std::vector<std::int64_t> row = statistics_of(t.values);
            at = std::copy(row.begin(), row.end(), at);
            const std::string name = t.module + "/" + t.kind + "/" + t.index;
            tensors[name] = table(t.values, t.features);
            about.push_back({{"module", t.module},
                             {"class", t.class_name},
                             {"kind", t.kind},
                             {"index", t.index},
                             {"dtype", t.dtype},
                             {"shape", {std::int64_t(t.values.size()) / t.features, t.features}},
                             {"calls", t.calls},
                             {"sample", name}});
        }
        tensors["statistics"] = rows;
        const std::string file = "step_" + std::to_string(planted.step) + ".safetensors";
        save_safetensors(
            folder / file, tensors,
            {{"format", "invar-probe"}, {"version", "1"}, {"facts", facts.dump()}, {"tensors", about.dump()}});
        facts["file"] = file;
        index << facts.dump() << "\n";
    }
}

// 16 rows of 4 features that vary by about `spread` around `offset`.
inline Values around(float offset, float spread, int salt = 0) {
    Values values;
    for (int i = 0; i < 64; ++i) values.push_back(offset + spread * std::sin(float(i * 7 + salt) + 0.3f * float(i)));
    return values;
}

// fc1, an activation, fc2: a step with nothing wrong in it.
inline std::vector<Planted> good_tensors() {
    return {{"", "Net", "input", "0", "float32", around(0, 1, 1)},
            {"fc1", "Linear", "input", "0", "float32", around(0, 1, 1)},
            {"fc1", "Linear", "output", "0", "float32", around(0, 2, 2)},
            {"act", "ReLU", "input", "0", "float32", around(0, 2, 2)},
            {"act", "ReLU", "output", "0", "float32", around(1, 1, 3)},
            {"fc2", "Linear", "input", "0", "float32", around(1, 1, 3)},
            {"fc2", "Linear", "output", "0", "float32", around(0, 1, 4)},
            {"fc2", "Linear", "output_grad", "0", "float32", around(0, 1e-2f, 5)},
            {"act", "ReLU", "output_grad", "0", "float32", around(0, 1e-3f, 6)},
            {"fc1", "Linear", "output_grad", "0", "float32", around(0, 1e-3f, 7)},
            {"fc1", "Linear", "weight", "weight", "float32", around(0, 0.1f, 8)},
            {"fc1", "Linear", "weight_grad", "weight", "float32", around(0, 1e-2f, 9)},
            {"fc2", "Linear", "weight", "weight", "float32", around(0, 0.1f, 10)},
            {"fc2", "Linear", "weight_grad", "weight", "float32", around(0, 1e-2f, 11)}};
}

inline Planted& find(std::vector<Planted>& tensors, const std::string& module, const std::string& kind) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const Planted& t) { return t.module == module && t.kind == kind; });
}

}  // namespace invar::probes
