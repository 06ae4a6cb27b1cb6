// A training loop: the model, its data and a precision are there already.
#include <gtest/gtest.h>

#include "invar/invar.h"

void train(invar::Module& model, invar::Loader& data, const invar::Precision& precision) {
    // BLOCK
}

class Loop : public ::testing::TestWithParam<const char*> {};

TEST_P(Loop, Learns) {
    invar::default_generator().set_state({1, 0});
    const std::shared_ptr<const invar::Dataset> set =
        invar::make_dataset({.name = "synthetic", .size = 256, .height = 8, .width = 8}, invar::Split::train);
    const invar::Classification task(set, set, [](const invar::DataInfo&) {
        return invar::make_model({.name = "mlp", .height = 8, .width = 8, .hidden = {16}});
    });
    invar::Loader data(set, {.batch_size = 16, .num_workers = 0});
    const auto model = task.make_model();
    const invar::Precision precision = invar::Precision::parse(GetParam());
    const double before = invar::evaluate(task, *model, data, precision).loss();
    train(*model, data, precision);
    EXPECT_LT(invar::evaluate(task, *model, data, precision).loss(), before);
}

INSTANTIATE_TEST_SUITE_P(Docs, Loop, ::testing::Values("32-true", "16-mixed", "bf16-mixed"));
