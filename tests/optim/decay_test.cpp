// Weight decay that spares norms and biases: they move as without it, and everything else as with it.
#include "invar/nn/layers.h"
#include "invar/optim/specs.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

struct Small : Module {
    Conv2d& conv = add<Conv2d>("conv", 2, 3, 3);
    BatchNorm& norm = add<BatchNorm>("norm", 3);
    Linear& fc = add<Linear>("fc", 3, 2);
    Tensor forward(const Tensor& x) override { return fc(ops::mean(norm(conv(x)), {1, 2})); }
};

StateDict trained(const OptimizerConfig& config) {
    default_generator().set_state({7, 0});
    Small model;
    for (Parameter* parameter : model.parameters())  // zeros would not decay
        ops::copy_(parameter->value.detach(), ops::add(parameter->value.detach(), Tensor::scalar(0.5)));
    Optimizer optimizer(parameter_groups(model, config));
    for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        for (Parameter* parameter : model.parameters()) {
            std::vector<float> values;
            for (std::int64_t i = 0; i < parameter->value.numel(); ++i)
                values.push_back(float(std::sin(double(i) * 1.3 + step)));
            set_gradient(*parameter, values);
        }
        optimizer.step();
    }
    return model.state_dict();
}

TEST(WeightDecay, SparesNormsAndBiasesWhereItIsAskedTo) {
    for (const char* name : {"sgd", "adam", "adamw"}) {
        OptimizerConfig config;
        config.choose(name);
        config.lr = 0.05;
        if (std::string(name) == "sgd") config.set("momentum", "0.9");
        const StateDict none = trained(config);
        config.weight_decay = 0.2;
        const StateDict all = trained(config);
        config.decay_norms_and_biases = false;
        const StateDict some = trained(config);
        for (const char* spared : {"conv.bias", "norm.weight", "norm.bias", "fc.bias"}) {
            EXPECT_EQ(bytes_of(some.at(spared)), bytes_of(none.at(spared))) << name << " " << spared;
            EXPECT_NE(bytes_of(some.at(spared)), bytes_of(all.at(spared))) << name << " " << spared;
        }
        for (const char* decayed : {"conv.weight", "fc.weight"}) {
            EXPECT_EQ(bytes_of(some.at(decayed)), bytes_of(all.at(decayed))) << name << " " << decayed;
            EXPECT_NE(bytes_of(some.at(decayed)), bytes_of(none.at(decayed))) << name << " " << decayed;
        }
    }
}

TEST(WeightDecay, IsForAllParametersUnlessSomebodySaysOtherwise) {
    Small model;
    OptimizerConfig config;
    config.weight_decay = 0.1;
    EXPECT_EQ(parameter_groups(model, config).size(), 1u);
    config.decay_norms_and_biases = false;
    const std::vector<ParameterGroup> groups = parameter_groups(model, config);
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0].spec.weight_decay, 0.1);
    EXPECT_EQ(groups[1].spec.weight_decay, 0.0);
    EXPECT_EQ(groups[0].parameters.size() + groups[1].parameters.size(), model.parameters().size());
}

}  // namespace
}  // namespace invar
