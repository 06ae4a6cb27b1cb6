// A training loop: the model, its data and a precision are there already.
#include <gtest/gtest.h>

#include "invar/invar.h"

void train(invar::Module& model, invar::Loader& data, const invar::Precision& precision) {
    // BLOCK
}

class Loop : public ::testing::TestWithParam<const char*> {};

TEST_P(Loop, Learns) {
    invar::default_generator().set_state({1, 0});
    const auto set = std::make_shared<invar::SyntheticDataset>(
        invar::SyntheticOptions{.size = 256, .height = 8, .width = 8}, invar::Split::train);
    const invar::Classification task(
        {set, set, [](const invar::DataInfo& data) { return invar::make_mlp({.hidden = {16}}, data); }});
    invar::Loader data(set, {.batch_size = 16, .num_workers = 0});
    const auto model = task.make_model();
    const invar::Precision precision = invar::Precision::parse(GetParam());
    const double before = invar::evaluate(task, *model, data, precision).loss();
    train(*model, data, precision);
    EXPECT_LT(invar::evaluate(task, *model, data, precision).loss(), before);
}

INSTANTIATE_TEST_SUITE_P(Docs, Loop, ::testing::Values("32-true", "16-mixed", "bf16-mixed"));
