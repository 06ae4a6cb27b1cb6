// What modules are called where people read of them.
#include "invar/nn/module_title.h"

#include <gtest/gtest.h>

#include "invar/nn/layers.h"

namespace invar {
namespace {

struct Net : Module {};
template <class T>
struct Wrapped : Module {};

TEST(ModuleTitle, HasPathAndClassAsPyTorchWritesThem) {
    EXPECT_EQ(module_title("layers.0.fc1", Linear(2, 3)), "layers.0.fc1 (Linear)");
    EXPECT_EQ(module_title("1", Relu()), "1 (ReLU)");
    EXPECT_EQ(module_title("", Sequential()), "the model itself (Sequential)");
}

TEST(ModuleTitle, NamesAClassOfSomebodyElsesWithoutWhatStandsAround) {
    EXPECT_EQ(class_name(Net()), "Net");
    EXPECT_EQ(class_name(Wrapped<std::vector<int>>()), "Wrapped");
}

}  // namespace
}  // namespace invar
