// Files of tensors of every kind, opened and read: those that PyTorch and NumPy made, and those that are wrong.
#include "invar/formats/tensor_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "invar/core/error.h"
#include "invar/formats/tensor_history.h"
#include "invar/io/checkpoint.h"
#include "invar/io/file.h"
#include "invar/ops/creation.h"
#include "tests/core/expect_error.h"
#include "tests/hub/torch_bytes.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<double>;

// The values of a tensor, read in pieces of so many bytes.
Values values_of(const TensorFile& file, const std::string& name, std::size_t piece = 1 << 20) {
    for (const StoredTensor& tensor : file.tensors())
        if (tensor.name == name) {
            Values values;
            std::string buffer(piece, '\0'), all;
            const auto stream = tensor.open();
            while (const std::size_t count = stream->read(buffer.data(), buffer.size())) all.append(buffer, 0, count);
            EXPECT_EQ(all.size(), tensor.bytes) << name;
            dispatch(tensor.dtype, [&](auto tag) {
                using T = typename decltype(tag)::type;
                for (std::size_t at = 0; at + sizeof(T) <= all.size(); at += sizeof(T)) {
                    T value;
                    std::memcpy(&value, all.data() + at, sizeof value);
                    values.push_back(double(value));
                }
            });
            return values;
        }
    ADD_FAILURE() << "no tensor " << name;
    return {};
}

std::map<std::string, std::string> left_out(const TensorFile& file) {
    std::map<std::string, std::string> all;
    for (const LeftOut& tensor : file.left_out()) all[tensor.name] = tensor.dtype;
    return all;
}

const fs::path kFiles = fs::path(INVAR_SOURCE_DIR) / "tests/formats/files";

TEST(TensorFiles, ReadWhatTorchSaved) {
    const TensorFile file(kFiles / "checkpoint.pt");
    for (const std::size_t piece : {8u, 16u, 1u << 20}) {
        EXPECT_EQ(values_of(file, "weight", piece), (Values{1, -2, 0.5, 0, double(1e-6f), 70000}));
        EXPECT_EQ(values_of(file, "transposed", piece), values_of(file, "weight")) << "in the order of their places";
        EXPECT_EQ(values_of(file, "every_other", piece), (Values{2, 4, 6}));
        EXPECT_EQ(values_of(file, "corner", piece), (Values{5, 6, 9, 10}));
        EXPECT_EQ(values_of(file, "half", piece), (Values{1, 65504}));
        EXPECT_EQ(values_of(file, "double", piece), (Values{1e300}));
    }
    EXPECT_EQ(values_of(file, "bf16"), (Values{3}));
    EXPECT_EQ(values_of(file, "empty"), Values{});
    EXPECT_EQ(values_of(file, "list.0"), (Values{1}));
    EXPECT_EQ(values_of(file, "model.running_var"), (Values{1, 1}));
    EXPECT_EQ(left_out(file),
              (std::map<std::string, std::string>{{"complex", "complex64"}, {"model.num_batches_tracked", "int64"}}));
    EXPECT_EQ(file.unread().size(), 2u) << "storages that every_other and corner have parts of";
    EXPECT_EQ(values_of(TensorFile(kFiles / "tensor.pt"), "tensor"), (Values{1, 2}));
    EXPECT_ERROR(TensorFile(kFiles / "module.pt"), IoError, "torch.nn.modules.batchnorm.BatchNorm1d");
    EXPECT_ERROR(TensorFile(kFiles / "expanded.pt"), IoError, "tensor.contiguous()");
    EXPECT_ERROR(TensorFile(kFiles / "before_1_6.pt"), IoError, "before 1.6");
}

TEST(TensorFiles, ReadWhatNumpySaved) {
    for (const char* name : {"stored.npz", "deflated.npz"}) {
        const TensorFile file(kFiles / name);
        for (const std::size_t piece : {8u, 1u << 20}) {
            EXPECT_EQ(values_of(file, "w", piece), (Values{0, 1, 2, 3, 4, 5})) << name;
            EXPECT_EQ(values_of(file, "big", piece), (Values{1.5, -2.5})) << name;
        }
        EXPECT_EQ(values_of(file, "half"), (Values{1, 1, 1, 1}));
        EXPECT_EQ(values_of(file, "scalar"), (Values{7}));
        EXPECT_EQ(left_out(file),
                  (std::map<std::string, std::string>{{"c", "<c8"}, {"i", "<i8"}, {"o", "|O"}, {"s", "<U1"}}));
    }
}

TEST(TensorFiles, AreRefusedOrReadWhereverTheyAreCutOrChanged) {
    const Scratch scratch;
    for (const char* name : {"checkpoint.pt", "stored.npz", "deflated.npz"}) {
        const std::string whole = read_file(kFiles / name);
        const auto read_all = [&](std::string_view bytes) {
            put(scratch / "f", bytes);
            const Inspection inspection = inspect({scratch / "f"}, {Dtype::f16}, 1);
            return inspection.total.tally.values;
        };
        const std::int64_t values = read_all(whole);
        for (std::size_t cut = 0; cut < whole.size(); cut += 41)
            EXPECT_THROW(read_all(std::string_view(whole).substr(0, cut)), IoError) << name << " " << cut;
        for (std::size_t at = 0; at < whole.size(); at += 13) {
            std::string changed = whole;
            changed[at] = char(changed[at] ^ 0x11);
            try {
                EXPECT_LE(read_all(changed), values) << name << " " << at;
            } catch (const IoError& error) {
                EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
            }
        }
    }
}

TEST(TensorFiles, AreVerifiedWhereATensorHasAPartOfThem) {
    using namespace testing;
    const Scratch scratch;
    const std::string pickle = tensor_pickle("0", 1, {2}, {1}), storage = raw_bytes<float>({1, 2, 3, 4});
    put(scratch / "good.pt", torch_bytes(pickle, storage));
    EXPECT_EQ(inspect({scratch / "good.pt"}, {Dtype::f16}).total.tally.largest, 3);
    const std::string bad = ZipMaker()
                                .add("m/data.pkl", "\x80\x02" + pickle + ".")
                                .add_raw("m/data/0", storage, storage.size(), crc_of(storage) ^ 1, false)
                                .bytes();
    put(scratch / "bad.pt", bad);
    EXPECT_ERROR(inspect({scratch / "bad.pt"}, {Dtype::f16}), IoError, "checksum");
}

TEST(TensorFiles, ReadShardsByTheirIndex) {
    const Scratch scratch;
    save_safetensors(scratch / "one.safetensors", {{"a", ops::full({2}, 1)}, {"n", ops::full({1}, 1, Dtype::i64)}});
    save_safetensors(scratch / "two.safetensors", {{"b", ops::full({3}, 2)}});
    const auto index = [&](const std::string& map) {
        put(scratch / "model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
    };
    const std::string good = "\"a\": \"one.safetensors\", \"n\": \"one.safetensors\", \"b\": \"two.safetensors\"";
    index(good);
    for (const fs::path& path : {scratch / "model.safetensors.index.json", scratch.path()}) {
        const TensorFile file(path);
        EXPECT_EQ(values_of(file, "a"), (Values{1, 1}));
        EXPECT_EQ(values_of(file, "b"), (Values{2, 2, 2}));
        EXPECT_EQ(left_out(file), (std::map<std::string, std::string>{{"n", "I64"}}));
    }
    index(good + ", \"c\": \"two.safetensors\"");
    EXPECT_ERROR(TensorFile(scratch / "model.safetensors.index.json"), IoError, "the tensor \"c\" is said to be in");
    index(good + ", \"c\": \"three.safetensors\"");
    EXPECT_ERROR(TensorFile(scratch / "model.safetensors.index.json"), IoError,
                 "the shard \"three.safetensors\" is missing");
}

TEST(TensorFiles, ThatAreOtherArchivesAreRefused) {
    const Scratch scratch;
    put(scratch / "x.zip", testing::ZipMaker().add("readme.txt", "hello").bytes());
    EXPECT_ERROR(TensorFile(scratch / "x.zip"), IoError, "holds \"readme.txt\"");
    // An array that is said to be larger than it is, and one that unpacks to a thousand times its size.
    const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (300000000,), }";
    const std::string npy = "\x93NUMPY\x01" + std::string(1, '\0') + testing::little(head.size(), 2) + head;
    put(scratch / "a.npz", testing::ZipMaker().add("w.npy", npy + std::string(400, '\0'), true).bytes());
    EXPECT_ERROR(TensorFile(scratch / "a.npz"), IoError, "expected 1200000");
    const std::string packed = testing::deflated(npy + std::string(1 << 20, '\0'));
    put(scratch / "b.npz", testing::ZipMaker().add_raw("w.npy", packed, npy.size() + 1'200'000'000, 0, true).bytes());
    EXPECT_ERROR(inspect({scratch / "b.npz"}, {Dtype::f16}, 1), IoError, "does not have the");
}

// ---- one tensor over many steps ----

TEST(TensorHistory, FollowsATensorOverTheStepsOfARun) {
    const Scratch scratch;
    fs::create_directories(scratch / "run/checkpoints");
    const CheckpointFolder run(scratch / "run/checkpoints", 9);
    for (const int step : {20, 3, 100})
        save_safetensors(run.path_of(step), {{"model.w", Tensor::from<float>({3, -4, 0, 1e-7f * float(step)}, {4})},
                                             {"optimizer.w", ops::full({2}, 1)}});
    const std::vector<TensorAtStep> history = follow_tensor({scratch / "run"}, "w", {Dtype::f16});
    ASSERT_EQ(history.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(history[i].step, (std::vector<std::int64_t>{3, 20, 100})[i]);
        EXPECT_EQ(history[i].tensor.name, "model.w");
        EXPECT_NEAR(history[i].norm, 5.0, 1e-9);
        EXPECT_EQ(history[i].least, -4.0);
        EXPECT_EQ(history[i].greatest, 3.0);
        EXPECT_EQ(history[i].tensor.tally.zeros, 1);
        EXPECT_EQ(history[i].tensor.tally.formats[0].subnormal, 1);
    }
    EXPECT_ERROR(follow_tensor({scratch / "run"}, "model.v", {Dtype::f16}), UsageError, "no tensor \"model.v\"");
}

TEST(TensorHistory, TakesFilesOfAnyKindInTheOrderOfTheirSteps) {
    const Scratch scratch;
    for (const int step : {10, 9}) {
        const fs::path folder = scratch / fmt::format("out/checkpoint-{}", step);
        fs::create_directories(folder);
        save_safetensors(folder / "model.safetensors", {{"w", ops::full({2}, step)}});
    }
    const std::vector<TensorAtStep> history = follow_tensor({scratch / "out"}, "w", {Dtype::f16});
    ASSERT_EQ(history.size(), 2u);
    EXPECT_EQ(history[0].greatest, 9);
    EXPECT_EQ(history[1].step, 10);
    save_safetensors(scratch / "later.safetensors", {{"w", Tensor::from<float>({INFINITY, 1}, {2})}});
    const auto mixed = follow_tensor({scratch / "later.safetensors", scratch / "out/checkpoint-9"}, "w", {Dtype::f16});
    ASSERT_EQ(mixed.size(), 2u);
    EXPECT_EQ(mixed[0].step, std::nullopt) << "one has no step, so they stay as they are given";
    EXPECT_EQ(mixed[0].greatest, 1);
    EXPECT_EQ(mixed[0].tensor.tally.infinities, 1);
    fs::create_directories(scratch / "nothing");
    EXPECT_ERROR(follow_tensor({scratch / "nothing"}, "w", {Dtype::f16}), UsageError, "no weights in it");
    EXPECT_ERROR(follow_tensor({kFiles / "checkpoint.pt"}, "complex", {Dtype::f16}), UsageError, "is of complex64");
    EXPECT_ERROR(follow_tensor({kFiles / "checkpoint.pt"}, "running_vr", {Dtype::f16}), UsageError, "did you mean");
}

}  // namespace
}  // namespace invar
