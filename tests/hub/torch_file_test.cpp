// What torch.save wrote, listed without running it; and files that were made to harm.
#include "invar/hub/torch_file.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/hub/pickle.h"
#include "tests/core/expect_error.h"
#include "tests/hub/torch_bytes.h"

namespace invar {
namespace {

using namespace testing;

TorchFile open(const std::string& bytes) {
    const auto kept = std::make_shared<std::string>(bytes);
    const ReadAt read = [kept](std::uint64_t offset, char* out, std::size_t count) {
        ASSERT_LE(offset + count, kept->size());
        kept->copy(out, count, std::size_t(offset));
    };
    return {read, zip_members(read, bytes.size(), "F"), bytes.size(), "F"};
}
TorchFile open_pickle(const std::string& pickle, std::size_t floats = 6) {
    return open(torch_bytes(pickle, std::string(4 * floats, '\1')));
}

TEST(TorchFile, NamesTensorsByTheKeysThatLeadToThem) {
    const std::string w = tensor_pickle("0", 0, {2, 3}, {3, 1}), b = tensor_pickle("0", 1, {2}, {2});
    const TorchFile file = open_pickle(dict_of({{"model", dict_of({{"conv.weight", w}})},
                                                {"list", "](" + b + pickled(std::int64_t(3)) + b + "e"},
                                                {"epoch", pickled(std::int64_t(7))},
                                                {"name", pickled("x")}}));
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.tensors()[0].name, "model.conv.weight");
    EXPECT_EQ(file.tensors()[0].shape, (Shape{2, 3}));
    EXPECT_EQ(file.tensors()[0].known, Dtype::f32);
    EXPECT_TRUE(file.tensors()[0].fills_storage());
    EXPECT_EQ(file.tensors()[1].name, "list.0");
    EXPECT_EQ(file.tensors()[2].name, "list.2");
    EXPECT_FALSE(file.tensors()[1].fills_storage());
    EXPECT_EQ(open_pickle(w).tensors().at(0).name, "tensor");
}

TEST(TorchFile, KnowsParametersOrderedDictsWithAttributesAndUntypedStorages) {
    const std::string w = tensor_pickle("0", 0, {6}, {1});
    const std::string parameter =
        global("torch._utils", "_rebuild_parameter") + "(" + w + "\x88" + global("collections", "OrderedDict") + ")RtR";
    const std::string ordered = global("collections", "OrderedDict") + ")R(" + pickled("p") + parameter + "u" +
                                dict_of({{"_metadata", dict_of({})}}) + "b";
    EXPECT_EQ(open_pickle(ordered).tensors().at(0).name, "p");
    const std::string fp8 = global("torch._utils", "_rebuild_tensor_v3") + "((" + pickled("storage") +
                            global("torch.storage", "UntypedStorage") + pickled("0") + pickled("cpu") +
                            pickled(std::int64_t(24)) + "tQ" + pickled(std::int64_t(0)) + tuple_of({24}) +
                            tuple_of({1}) + "\x89N" + global("torch", "float8_e4m3fn") + "tR";
    EXPECT_EQ(open_pickle(fp8).tensors().at(0).known, Dtype::f8e4m3);
    EXPECT_TRUE(open_pickle(fp8).tensors().at(0).fills_storage());
}

TEST(TorchFile, RefusesEveryCallByNameAndMakesNone) {
    const auto refused = [](const std::string& pickle, const std::string& name) {
        EXPECT_ERROR(open_pickle(pickle), IoError, "F: asks for \"" + name + "\"");
    };
    refused(global("os", "system") + "(" + pickled("touch /tmp/harm") + "tR", "os.system");
    refused(global("posix", "system") + "(" + pickled("id") + "tR", "posix.system");
    refused(global("builtins", "eval") + "(" + pickled("1") + "tR", "builtins.eval");
    refused("\x8c\x02os\x8c\x06system\x93(" + pickled("id") + "tR", "os.system");
    refused(global("torch.nn.modules.linear", "Linear") + ")\x81}b", "torch.nn.modules.linear.Linear");
    refused(global("numpy.core.multiarray", "scalar") + ")R", "numpy.core.multiarray.scalar");
    refused(global("torch", "load") + ")R", "torch.load");
    refused(global("a\x1b[2J", "b\"c"), "a\\u001b[2J.b\\\"c");
    EXPECT_ERROR(open_pickle("(" + pickled("id") + "ios\nsystem\n"), IoError, "code 0x69");
    EXPECT_ERROR(open_pickle("(cos\nsystem\n"), IoError, "os.system");
}

TEST(TorchFile, BelievesNoShape) {
    constexpr std::int64_t kHuge = std::int64_t(1) << 62;
    const auto says = [](const std::string& tensor, const char* what) {
        EXPECT_ERROR(open_pickle(dict_of({{"w", tensor}})), IoError, what);
    };
    says(tensor_pickle("0", 0, {7}, {1}), "\"w\" reaches beyond its storage");
    says(tensor_pickle("0", 1, {6}, {1}), "reaches beyond");
    says(tensor_pickle("0", 0, {kHuge}, {1}), "reaches beyond");
    says(tensor_pickle("0", 0, {kHuge, kHuge}, {kHuge, 1}), "reaches beyond");
    says(tensor_pickle("0", 0, {2}, {kHuge}), "reaches beyond");
    says(tensor_pickle("0", kHuge, {1}, {1}), "begins beyond");
    says(tensor_pickle("0", -1, {1}, {1}), "begins beyond");
    says(tensor_pickle("0", 0, {-1}, {1}), "negative");
    says(tensor_pickle("0", 0, {2}, {-1}), "negative");
    says(tensor_pickle("0", 0, {kHuge}, {0}), "several times (expand)");
    says(tensor_pickle("0", 0, {3, 3}, {1, 1}), "several times");
    says(tensor_pickle("0", 0, {2, 2}, {1}), "not a stride for each size");
    says(tensor_pickle("0", 0, {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}), "7 dimensions");
    says(tensor_pickle("1", 0, {1}, {1}), "the storage \"1\" of the tensor \"w\" is missing");
    says(global("torch._utils", "_rebuild_tensor_v2") + ")R", "described by too little");
    says(global("torch._utils", "_rebuild_tensor_v2") + "(NNNNtR", "has no storage");
    EXPECT_EQ(open_pickle(tensor_pickle("0", 6, {0, 3}, {3, 1})).tensors().at(0).numel, 0);
    EXPECT_ERROR(open(torch_bytes(tensor_pickle("0", 0, {1}, {1}), "")), IoError, "reaches beyond");
}

TEST(TorchFile, GoesRoundNoCircleAndUnfoldsNoBomb) {
    EXPECT_ERROR(open_pickle("}q\x01(" + pickled("a") + "h\x01u"), IoError, "hold themselves");
    EXPECT_ERROR(open_pickle("]q\x01h\x01"
                             "a"),
                 IoError, "hold themselves");
    // Each list holds the one before it ten times: 10^20 tensors.
    std::string lists = "](" + tensor_pickle("0", 0, {1}, {1}) + "eq\x01";
    for (int i = 0; i < 20; ++i) {
        lists += "](";
        for (int j = 0; j < 10; ++j) lists += "h\x01";
        lists += "eq\x01";
    }
    EXPECT_ERROR(open_pickle(lists), IoError, "hold one another more often");
}

TEST(TorchFile, RefusesTensorsThatShareTheirBytesTooOften) {
    std::string many = "](";
    const std::string whole = tensor_pickle("0", 0, {1 << 18}, {1});
    for (int i = 0; i < 200; ++i) many += whole;
    EXPECT_ERROR(open(torch_bytes(many + "e", std::string(4 << 18, '\0'))), IoError, "more than 16 times over");
}

Pickle read(const std::string& bytes) {
    static const std::string source = "F";
    static std::string kept;
    kept = bytes;
    return {kept, source, [](std::string_view) { return true; }};
}

TEST(Pickle, ReadsPlainValues) {
    using Kind = PickleValue::Kind;
    const Pickle pickle =
        read("\x80\x04\x95" + std::string(8, '\0') + "(NK\x05M\x34\x12J\xff\xff\xff\xff\x8a\x01\xfe\x88G" +
             std::string(8, 'x') + "\x8c\x02hi\x94" + "C\x01z" + "\x85" + "h" + std::string(1, '\0') + "t.");
    const auto& items = pickle.root().items;
    ASSERT_EQ(items.size(), 10u);
    EXPECT_EQ(pickle.at(items[0]).kind, Kind::none);
    const std::vector<std::int64_t> integers = {5, 0x1234, -1, -2, 1};
    for (std::size_t i = 0; i < integers.size(); ++i) EXPECT_EQ(pickle.at(items[i + 1]).integer, integers[i]);
    EXPECT_EQ(pickle.at(items[7]).text, "hi");
    EXPECT_EQ(pickle.at(items[8]).kind, Kind::tuple);
    EXPECT_EQ(items[9], items[7]);
}

TEST(Pickle, EndsInOneLineWhateverItIs) {
    EXPECT_ERROR(read(""), IoError, "ends too early");
    EXPECT_ERROR(read("."), IoError, "empty stack");
    EXPECT_ERROR(read("0."), IoError, "empty stack");
    EXPECT_ERROR(read("N(0."), IoError, "empty stack");  // what lies below a mark is not to be had
    EXPECT_ERROR(read("t."), IoError, "no mark");
    EXPECT_ERROR(read("h\x01."), IoError, "never kept");
    EXPECT_ERROR(read("NNs."), IoError, "empty stack");
    EXPECT_ERROR(read("NNNs."), IoError, "no container");
    EXPECT_ERROR(read("}(Nu."), IoError, "no container");
    EXPECT_ERROR(read("N)R."), IoError, "cannot be called");
    EXPECT_ERROR(read("X\xff\xff\xff\x7f."), IoError, "ends too early");
    EXPECT_ERROR(read("\x8e" + std::string(8, '\xff') + "."), IoError, "ends too early");
    EXPECT_ERROR(read("\x80\x06N."), IoError, "later protocol");
    EXPECT_ERROR(read("cos"), IoError, "ends too early");
    EXPECT_ERROR(read("NN\x93."), IoError, "no text");
    EXPECT_ERROR(read(std::string(2000, '(')), IoError, "nested too deeply");
    EXPECT_ERROR(read(std::string((2 << 20) + 2, 'N') + "."), IoError, "more than 2097152 values");
    EXPECT_ERROR(read("N" + std::string(3 << 20, '2') + "."), IoError, "piles up too much");
    // One long list of pairs, made into a dictionary again and again.
    std::string again = "](";
    for (int i = 0; i < 1000; ++i) again += "NN\x86";
    again +=
        "e\x85q\x01"
        "0ccollections\nOrderedDict\nq\x02"
        "0";
    for (int i = 0; i < 1000; ++i) again += "h\x02h\x01R0";
    EXPECT_ERROR(read(again + "N."), IoError, "over and over");
}

}  // namespace
}  // namespace invar
