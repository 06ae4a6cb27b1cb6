// What a precision does, seen from inside the operations of a training step, and what it promises.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/train/announcement.h"
#include "invar/train/step.h"

namespace invar {

// The floating dtypes that ops of each cast class were given; of the class fp32, whose ops may widen what they read by
// themselves, those that they gave.
struct Deeds : OpWatcher {
    void forward(const ForwardRun& run) override {
        for (const OpEntry& entry : registered_ops()) {
            if (std::strcmp(entry.name, run.op) != 0) continue;
            const Tensors result{run.result};
            for (const Tensor& tensor : entry.cast == CastClass::fp32 ? result : run.inputs)
                if (tensor && is_floating(tensor.dtype())) seen[entry.cast].insert(tensor.dtype());
        }
    }
    std::map<CastClass, std::set<Dtype>> seen;
};

// What each name promises, written down here once more and by hand.
struct Promise {
    Dtype products, weights;
    bool shadow, scaler;
    const char* announced;  // the part of the announcement that says what products run in
};

inline const std::map<std::string, Promise>& promises() {
    static const std::map<std::string, Promise> all = {
        {"32-true", {Dtype::f32, Dtype::f32, false, false, "FP32 (no mixed precision)"}},
        {"tf32", {Dtype::f32, Dtype::f32, false, false, "matrix products and convolutions in TF32"}},
        {"16-mixed", {Dtype::f16, Dtype::f32, true, true, "matrix products and convolutions in FP16"}},
        {"bf16-mixed", {Dtype::bf16, Dtype::f32, true, false, "matrix products and convolutions in BF16"}},
        {"16-true", {Dtype::f16, Dtype::f16, false, false, "everything in FP16 but losses, norms and exponentials"}},
        {"bf16-true",
         {Dtype::bf16, Dtype::bf16, false, false, "everything in BF16 but losses, norms and exponentials"}},
    };
    return all;
}

// One step of each model under each precision that the device has; the others are refused before anything runs.
inline void expect_deeds(Config config) {
    ASSERT_EQ(promises().size(), Precision::names().size()) << "a precision without a promise, or the other way round";
    for (const std::string& name : Precision::names()) {
        const Promise& promise = promises().at(name);
        config.trainer.precision = name;
        if (name == "tf32" && config.trainer.device == "cpu") {
            EXPECT_THROW(Setup{config}, UsageError);
            continue;
        }
        for (const char* model : {"mlp", "convnet"}) {
            const std::string what = name + ", " + model;
            config.model.choose(model);
            Setup setup(config);
            setup.train_data->start_epoch(0);
            const std::vector<Batch> group = setup.next_group();
            Deeds deeds;
            {
                const WatchScope watch(&deeds);
                training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip,
                              group);
            }
            EXPECT_EQ(deeds.seen[CastClass::low], std::set<Dtype>{promise.products}) << what;
            EXPECT_EQ(deeds.seen[CastClass::fp32], std::set<Dtype>{Dtype::f32}) << what;
            const ParameterStore& store = setup.optimizer->store();
            EXPECT_EQ(store.weights().dtype(), promise.weights) << what;
            EXPECT_EQ(store.gradients().dtype(), Dtype::f32) << what;
            EXPECT_EQ(store.shadow().defined(), promise.shadow) << what;
            EXPECT_TRUE(!promise.shadow || store.shadow().dtype() == promise.products) << what;
            EXPECT_EQ(setup.scaler->enabled(), promise.scaler) << what;

            std::string announced;
            for (const std::string& line : announce_precision(setup)) announced += line + "\n";
            EXPECT_NE(announced.find(promise.announced), std::string::npos) << what << ": " << announced;
            EXPECT_EQ(announced.find("master weights") != std::string::npos, promise.shadow) << announced;
            EXPECT_EQ(announced.find("weights in FP16 alone") != std::string::npos, promise.weights == Dtype::f16);
            EXPECT_EQ(announced.find("weights in BF16 alone") != std::string::npos, promise.weights == Dtype::bf16);
            EXPECT_EQ(announced.find("FP8"), std::string::npos) << announced;
        }
    }
}

}  // namespace invar
