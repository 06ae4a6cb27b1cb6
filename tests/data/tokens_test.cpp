// Text and files of tokens as data sets.
#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/io/file.h"
#include "invar/io/temporary_folder.h"
#include "invar/text/token_file.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

Part text(const fs::path& file, const std::string& length) {
    Part part("data", "text");
    return part.set("path", file.string()).set("length", length);
}

TEST(TextData, CutsATextIntoRowsAndTheTokensThatFollow) {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "text.txt";
    write_file_atomically(file, "abcdefghijklmnopqrst");  // 20 bytes, the last 2 to validate on
    const auto train = open_data(text(file, "4"), Split::train);
    EXPECT_EQ(train->size(), 4);  // 18 tokens: four rows of 4 and one behind
    EXPECT_EQ(train->info().input, Shape{4});
    EXPECT_EQ(train->info().outputs, 257);
    const std::vector<std::int64_t> indices = {3, 0};
    const Batch batch = train->read(indices);
    EXPECT_EQ(batch["x"].to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{'m', 'n', 'o', 'p', 'a', 'b', 'c', 'd'}));
    EXPECT_EQ(batch["y"].to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{'n', 'o', 'p', 'q', 'b', 'c', 'd', 'e'}));
    EXPECT_ERROR(open_data(text(file, "4"), Split::test), UsageError,
                 "text.txt: 2 tokens are too few for a sample of data.length = 4 and the one behind it: of 20 in all "
                 "they are those to validate on (data.test_share = 0.1); use a smaller data.length, or another "
                 "data.test_share");
    EXPECT_ERROR(open_data(text(file, "18"), Split::train), UsageError,
                 "18 tokens are too few for a sample of data.length = 18 and the one behind it: of 20 in all they are "
                 "those to train on");
    EXPECT_EQ(open_data(text(file, "1"), Split::test)->size(), 1);
    EXPECT_ERROR(open_data(Part("data", "text"), Split::train), UsageError, "data.path=FILE");
    EXPECT_THROW(open_data(text(folder.path() / "none", "4"), Split::train), Error);
}

TEST(TextData, CountsTheDocumentsOfARow) {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "text.txt";
    write_file_atomically(file, "ab<|endoftext|>cdef<|endoftext|><|endoftext|>gh");  // 11 tokens
    Part part = text(file, "5");
    part.set("test_share", "0").set("documents", "true");
    const std::vector<std::int64_t> indices = {0, 1};
    const Batch batch = open_data(part, Split::train)->read(indices);
    EXPECT_EQ(batch["documents"].to_vector<int>(), (std::vector<int>{0, 0, 0, 1, 1, 0, 0, 0, 1, 2}));
    part.set("documents", "false");
    EXPECT_FALSE(open_data(part, Split::train)->read(indices).has("documents"));
}

TEST(TokenData, ReadsShardsAsOneSequence) {
    const TemporaryFolder folder;
    std::vector<text::TokenId> all;
    for (text::TokenId i = 0; i < 50; ++i) all.push_back(i * 7 % 40);
    for (const int shard : {0, 1}) {
        text::TokenWriter writer(folder.path() / fmt::format("{}.bin", shard), text::TokenFormat::uint16, 40);
        writer.write(std::span(all).subspan(std::size_t(25 * shard), 25));
        writer.commit();
    }
    Part part("data", "tokens");
    part.set("path", folder.path().string()).set("length", "10").set("test_share", "0");
    EXPECT_ERROR(open_data(part, Split::train), UsageError, "data.vocabulary=N");
    part.set("vocabulary", "40");
    const auto data = open_data(part, Split::train);
    EXPECT_EQ(data->size(), 4);
    const std::vector<std::int64_t> indices = {2};  // over the end of the first shard
    const std::vector<std::int64_t> x = data->read(indices)["x"].to_vector<std::int64_t>();
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(x[i], std::int64_t(all[20 + i])) << i;
    part.set("test_share", "0.2");
    EXPECT_ERROR(open_data(part, Split::test), UsageError,
                 "10 tokens are too few for a sample of data.length = 10 and the one behind it: of 50 in all they are "
                 "those to validate on (data.test_share = 0.2); use a smaller data.length, or another data.test_share "
                 "or data.test_path");
    part.set("test_path", (folder.path() / "0.bin").string()).set("length", "25");
    EXPECT_ERROR(open_data(part, Split::test), UsageError,
                 "0.bin: 25 tokens are too few for a sample of data.length = 25 and the one behind it; use a smaller "
                 "data.length");
    part.set("test_path", "").set("length", "10").set("test_share", "0");
    part.set("documents", "true");
    EXPECT_ERROR(open_data(part, Split::train), UsageError, "data.documents needs data.tokenizer");
    part.set("documents", "false");
    part.set("vocabulary", "30");
    EXPECT_ERROR(open_data(part, Split::train)->read(indices), IoError, "and there are 30");
}

}  // namespace
}  // namespace invar
