// Hundreds of steps against PyTorch in f64: betas, decays and rates are rounded to FP32 once, as the numbers that an
// element is multiplied by, and so that their errors do not add up.
#include <gtest/gtest.h>

#include "tests/optim/fixture.h"

namespace invar {
namespace {

using Kind = OptimizerSpec::Kind;

constexpr int kSteps = 300;

// Made by tests/models/golden.py with PyTorch 1.13 in f64: the weights after 300 steps, then each moment.
struct Long {
    const char* name;
    OptimizerSpec spec;
    std::vector<std::vector<double>> state;
};
const Long kLong[] = {
    {"sgd",
     {.kind = Kind::sgd, .lr = 0.003, .weight_decay = 0.01},
     {{0.49523539076326928, -1.2382313986136331, 1.9822186205027559, 0.99133801615366046, -0.74279339303902414}}},
    {"momentum",
     {.kind = Kind::sgd, .lr = 1e-3, .weight_decay = 0.01, .momentum = 0.99},
     {{0.31677696052969967, -1.0362109636941723, 1.7055506633589304, 0.72556769947344457, -0.54371653426354238},
      {-0.55218753549758781, -1.5889270624276546, 2.7708467019292016, -0.26498090957928699, -0.039295957535190551}}},
    {"nesterov",
     {.kind = Kind::sgd, .lr = 1e-3, .weight_decay = 0.01, .momentum = 0.999, .nesterov = true},
     {{0.079565566099713034, -0.85144705814312893, 1.4853357111427823, 0.40160919167705766, -0.30288210031000645},
      {0.58966474761578347, -3.1799784540141491, 5.0611042297994242, 1.535470694789913, -1.3983582510538861}}},
    {"adam",
     {.kind = Kind::adam, .weight_decay = 0.01},
     {{0.4931007292432405, -1.2468799697282216, 1.9965523251748944, 0.99188287931466923, -0.74517815157445433},
      {-0.099551275346917267, -0.05812047724875425, 0.13621480347793208, -0.096691255611825622, 0.061531701406777287},
      {0.12976998038577409, 0.12956811266164869, 0.12988637535125563, 0.12965990709970035, 0.12969956746107689}}},
    {"adamw",
     {.kind = Kind::adamw, .weight_decay = 0.1},
     {{0.48151073137584421, -1.2151045721714293, 1.9456820413572997, 0.96659275499522979, -0.72621632480524823},
      {-0.104482899943675, -0.045647899854374674, 0.11624585739041141, -0.10660972233812403, 0.068985338780150965},
      {0.12976464883162972, 0.12952010878593739, 0.12977267784096941, 0.12964048455209576, 0.12968479043330799}}},
    {"adam that keeps nothing of the first moment",
     {.kind = Kind::adam, .beta1 = 0.0, .beta2 = 0.99},
     {{0.49961572764393186, -1.2493610242821054, 2.0007044298999452, 1.0005118938407154, -0.74973478019244999},
      {-0.88052481412887573, 0.5834999680519104, 0.73016327619552612, -0.07689223438501358, 0.99863606691360474},
      {0.47840056914092427, 0.47288890392681199, 0.47756780786500302, 0.47343352805344319, 0.4780392609861463}}},
};

// What is kept in FP32 is rounded by 2^-24 of it at every step, now up and now down.
const double kAllowed = 0x1p-24 * std::sqrt(double(kSteps));

void expect_close(const std::vector<float>& ours, const std::vector<double>& exact, const std::string& what) {
    double largest = 0;
    for (const double value : exact) largest = std::fmax(largest, std::fabs(value));
    ASSERT_EQ(ours.size(), exact.size());
    for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_NEAR(ours[i], exact[i], kAllowed * largest) << what << ", element " << i;
}

TEST(OptimizerAccuracy, StaysWithPyTorchsDoublesOverHundredsOfSteps) {
    for (const Long& golden : kLong) {
        Weights model;
        Optimizer optimizer(model, golden.spec);
        for (int step = 0; step < kSteps; ++step) {
            set_wave_gradients(model, step);
            optimizer.step();
        }
        expect_close(model.values(), golden.state[0], std::string(golden.name) + ", weights");
        ASSERT_EQ(optimizer.store().moments() + 1, int(golden.state.size()));
        for (int m = 0; m < optimizer.store().moments(); ++m) {
            std::vector<float> moment = optimizer.store().moment(m, 0).to_vector<float>();
            for (const float value : optimizer.store().moment(m, 1).to_vector<float>()) moment.push_back(value);
            expect_close(moment, golden.state[std::size_t(m) + 1],
                         std::string(golden.name) + ", moment " + std::to_string(m));
        }
    }
}

// A gradient may be so large that its square is not finite. In PyTorch the weight then stands still.
TEST(OptimizerAccuracy, MakesNoNanOfASecondMomentThatOverflowed) {
    for (const Kind kind : {Kind::adam, Kind::adamw}) {
        Weights model;
        Optimizer optimizer(model, {.kind = kind});
        for (int step = 0; step < 3; ++step) {
            set_gradient(model.a, {1e30f, 1, 1});
            optimizer.step();
        }
        EXPECT_EQ(model.values()[0], 0.5f);
        EXPECT_EQ(optimizer.store().moment(1, 0).to_vector<float>()[0], kInf);
    }
}

TEST(OptimizerAccuracy, TellsTheRateAsItWasGiven) {
    Weights model;
    EXPECT_EQ(Optimizer(model, {.lr = 1e-3}).learning_rate(), 1e-3);
}

}  // namespace
}  // namespace invar
