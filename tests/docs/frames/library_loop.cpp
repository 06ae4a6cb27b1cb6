// A loop around a step of one's own: model, data, optimizer and scaler are there already.
#include <gtest/gtest.h>

#include <cstdio>

#include "invar/invar.h"

using namespace ::invar;

void train(Module& model, Loader& data, Optimizer& optimizer, GradScaler& scaler, const Precision& precision,
           Device device) {
    // BLOCK
}

TEST(DocsLibrary, ALoopOfOnesOwnLearns) {
    default_generator().set_state({1, 0});
    const auto set =
        std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 256, .height = 8, .width = 8}, Split::train);
    const Classification task({set, set, [](const DataInfo& info) { return make_mlp({.hidden = {16}}, info); }});
    Loader data(set, {.batch_size = 16, .num_workers = 0});
    const auto model = task.make_model();
    const Precision precision = Precision::parse("16-mixed");
    Optimizer optimizer(*model, {.lr = 1e-2}, StoreOptions::for_precision(precision));
    GradScaler scaler;
    const double before = evaluate(task, *model, data, precision).loss();
    train(*model, data, optimizer, scaler, precision, Device::cpu());
    EXPECT_LT(evaluate(task, *model, data, precision).loss(), before);
}
