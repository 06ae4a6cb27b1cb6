// Whatever is registered, without naming it: a new model, data set or task is tested as soon as its file is there.
#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/models/registry.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"

namespace invar {
namespace {

std::vector<const PartInfo*> all(const std::string& kind) {
    const std::vector<const PartInfo*> parts = parts_of(kind);
    EXPECT_FALSE(parts.empty()) << kind;
    return parts;
}

// Those that need no files.
bool opens(const std::string& data) {
    try {
        open_data(Part("data", data), Split::train);
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

TEST(Registered, PartsSayWhatTheyAreAndWhatTheirKeysDo) {
    for (const char* kind : {"task", "model", "data", "optimizer", "scheduler"})
        for (const PartInfo* part : all(kind)) {
            EXPECT_TRUE(part->about.ends_with('.')) << kind << " " << part->name;
            for (const Key& key : part->keys)
                EXPECT_TRUE(key.help.ends_with('.') || key.help.ends_with("...")) << key.name;
        }
}

// What a model takes: images to classify, larger ones to make maps of, or tokens in a row, the first that it accepts.
struct Sample {
    DataInfo info;
    Tensor x;
    Shape y;
};
Sample sample_for(const std::string& model) {
    Generator generator(2);
    const auto uniform = [&](const Shape& shape) { return ops::uniform(shape, -1, 1, Dtype::f32, {}, generator); };
    const Sample images{{{16, 12, 3}, 5}, uniform({4, 16, 12, 3}), {4, 5}};
    const Sample maps{{{32, 64, 3}, 1}, uniform({4, 32, 64, 3}), {4, 32, 64, 2}};
    for (const Sample& sample : {images, maps}) {
        try {
            make_model(Part("model", model), sample.info);
            return sample;
        } catch (const UsageError&) {
            continue;
        }
    }
    return {{{3}, 11}, Tensor::from<std::int64_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}, {4, 3}), {4, 3, 11}};
}

TEST(Registered, ModelsFitTheirDataAndLearnWithEachWeight) {
    for (const PartInfo* part : all("model")) {
        const Sample sample = sample_for(part->name);
        default_generator().set_state({1, 0});
        const std::unique_ptr<Module> model = make_model(Part("model", part->name), sample.info);
        const Tensor y = (*model)(sample.x);
        EXPECT_EQ(y.shape(), sample.y) << part->name;
        backward(ops::sum(y * y));
        for (const Parameter* parameter : model->parameters())
            EXPECT_TRUE(parameter->value.grad()) << part->name << ": " << parameter->name << " has no gradient";
        const std::unique_ptr<Module> copy = make_model(Part("model", part->name), sample.info);
        copy->load_state_dict(model->state_dict());
        model->eval(), copy->eval();
        EXPECT_EQ((*model)(sample.x).to_vector<float>(), (*copy)(sample.x).to_vector<float>()) << part->name;
    }
}

TEST(Registered, DataAreTheSameWheneverTheyAreReadAndOtherInEachSplit) {
    for (const PartInfo* part : all("data")) {
        if (!opens(part->name)) continue;
        const Part data("data", part->name);
        const auto train = open_data(data, Split::train, 3), again = open_data(data, Split::train, 3),
                   test = open_data(data, Split::test, 3);
        EXPECT_EQ(train->info().input, test->info().input) << part->name;
        EXPECT_EQ(train->info().outputs, test->info().outputs) << part->name;
        if (const auto described = describe_data(data)) {
            EXPECT_EQ(described->input, train->info().input) << part->name;
            EXPECT_EQ(described->outputs, train->info().outputs) << part->name;
        }
        const std::vector<std::int64_t> together = {0, 1, 2}, one = {2};
        const Batch batch = train->read(together);
        for (const auto& [name, tensor] : batch.tensors()) {
            EXPECT_EQ(tensor.to_vector<double>(), again->read(together)[name].to_vector<double>()) << part->name;
            EXPECT_EQ(ops::slice(tensor, 0, 2, 3).to_vector<double>(), again->read(one)[name].to_vector<double>())
                << part->name << ": a sample depends on those read with it";
        }
        EXPECT_NE(batch["x"].to_vector<double>(), test->read(together)["x"].to_vector<double>()) << part->name;
        EXPECT_EQ(batch["x"].shape().numel(), 3 * train->info().input.numel()) << part->name;
    }
}

// On the first data that they take.
TEST(Registered, TasksHaveALossThatCanBeSentBackAndMetricsThatAddUp) {
    for (const PartInfo* part : all("task")) {
        bool served = false;
        const std::pair<const char*, const char*> trials[] = {
            {"mlp", "synthetic"}, {"mlp", "sines"}, {"gpt", "chains"}, {"dbnet", "rectangles"}};
        for (const auto& [model_name, data] : trials) {
            Config config;
            config.task.choose(part->name);
            config.model.choose(model_name);
            config.data.choose(data);
            const std::shared_ptr<const Task> task = make_task(config);
            const std::vector<std::int64_t> indices = {0, 1, 2, 3, 4};
            const Batch batch = task->data(Split::train)->read(indices);
            const std::unique_ptr<Module> model = task->make_model();
            try {
                backward(task->loss(*model, batch));
            } catch (const Error&) {
                continue;  // not made for these data
            }
            served = true;
            for (const Parameter* parameter : model->parameters()) EXPECT_TRUE(parameter->value.grad()) << part->name;
            std::size_t sums = 0;
            for (const Metric& metric : task->metrics()) sums += std::size_t(metric.sums);
            model->eval();
            const NoGrad no_grad;
            const std::vector<double> whole = task->measure(*model, batch);
            ASSERT_EQ(whole.size(), sums) << part->name;
            const std::vector<double> first = task->measure(*model, batch.head(2));
            std::vector<std::int64_t> rest = {2, 3, 4};
            const std::vector<double> second = task->measure(*model, task->data(Split::train)->read(rest));
            for (std::size_t i = 0; i < sums; ++i)
                EXPECT_NEAR(first[i] + second[i], whole[i], 1e-4 * (1 + std::abs(whole[i]))) << part->name << " " << i;
            EXPECT_EQ(task->metrics()[0].name, "loss") << part->name;
            break;
        }
        EXPECT_TRUE(served) << part->name;
    }
}

}  // namespace
}  // namespace invar
