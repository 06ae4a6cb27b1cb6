// Trainings of the same configuration by one process and by ranks that are threads, and what they come to.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "invar/train/step.h"
#include "tests/dist/thread_ranks.h"
#include "tests/train/scratch_run.h"

namespace invar {

using RawBytes = std::vector<std::byte>;

inline RawBytes raw_bytes(const Tensor& tensor) {
    const Tensor host = tensor.on_host();
    const auto* begin = static_cast<const std::byte*>(host.raw());
    return {begin, begin + host.bytes()};
}

// All that training changes, by name, as files have it.
inline std::map<std::string, RawBytes> state_of(Setup& setup) {
    std::map<std::string, RawBytes> state;
    for (const auto& [name, tensor] : setup.model->state_dict())
        if (name.find("running") == name.npos) state["model." + name] = raw_bytes(tensor);
    for (const auto& [name, tensor] : setup.optimizer->state_dict()) state["optimizer." + name] = raw_bytes(tensor);
    return state;
}

struct Trained {
    std::vector<double> losses, norms;
    std::map<std::string, RawBytes> state;
    std::vector<float> weights, running;  // statistics of batch norms
    Evaluation evaluation;
    RngState rng;
};

inline Config config_for(const std::string& strategy, const std::string& precision = "32-true") {
    Config config = small_config("/nowhere");
    config.trainer.strategy = strategy;
    config.trainer.precision = precision;
    config.trainer.threads = 1;
    config.trainer.bucket_mb = 0.005;  // several buckets
    config.model.choose("mlp", MlpOptions{.hidden = {64, 32}, .dropout = 0});
    config.data.num_workers = 0;
    return config;
}

inline Trained train_steps(const Config& config, std::int64_t steps, const std::function<void(Setup&)>& change = {}) {
    invar::Setup setup(config);
    if (change) change(setup);
    Trained trained;
    std::int64_t epoch = 0;
    setup.train_data->start_epoch(epoch);
    for (std::int64_t i = 0; i < steps; ++i) {
        std::vector<Batch> group = setup.next_group();
        if (group.empty()) {
            setup.train_data->start_epoch(++epoch);
            group = setup.next_group();
        }
        const Tensor loss = step_function(setup)(group);
        trained.losses.push_back(loss.item());
        trained.norms.push_back(setup.optimizer->state().grad_norm);
    }
    trained.rng = default_generator().state();
    trained.evaluation = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
    trained.state = state_of(setup);
    for (const Parameter* p : setup.model->parameters())  // ranks keep them in an order of their own
        for (const float value : p->to_file().to_vector<float>()) trained.weights.push_back(value);
    for (const auto& [name, tensor] : setup.model->state_dict())
        if (name.find("running") != name.npos)
            for (const float value : tensor.to_vector<float>()) trained.running.push_back(value);
    return trained;
}

inline std::vector<Trained> train_as_ranks(int size, const Config& config, std::int64_t steps,
                                           const std::function<void(Setup&)>& change = {}) {
    std::vector<Trained> all(static_cast<std::size_t>(size));
    as_ranks(size, [&](Communicator& ranks) { all[std::size_t(ranks.rank())] = train_steps(config, steps, change); });
    return all;
}

}  // namespace invar
