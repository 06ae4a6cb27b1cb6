// Files of tokens in nanoGPT's and llm.c's formats.
#include "invar/text/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar::text {
namespace {

using Ids = std::vector<TokenId>;
using Read = std::vector<std::int64_t>;

template <class T>
std::string raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
    std::vector<std::int32_t> numbers(256);
    numbers[0] = magic, numbers[1] = version, numbers[2] = count;
    return raw(numbers);
}

Read all(const TokenFile& file) {
    Read tokens(file.size());
    file.read(0, tokens.size(), tokens.data());
    return tokens;
}

TEST(TokenFile, ReadsBareNumbersAsNanoGptWritesThem) {
    const Scratch scratch;
    put(scratch / "a.bin", raw<std::uint16_t>({5, 65535, 0, 7}));
    EXPECT_EQ(all(TokenFile((scratch / "a.bin").string())), (Read{5, 65535, 0, 7}));
    put(scratch / "b.bin", raw<std::uint32_t>({5, 128000}));
    EXPECT_EQ(all(TokenFile((scratch / "b.bin").string(), TokenFormat::uint32)), (Read{5, 128000}));
}

TEST(TokenFile, ReadsBothKindsOfLlmc) {
    const Scratch scratch;
    put(scratch / "a.bin", header(20240520, 1, 3) + raw<std::uint16_t>({5, 65535, 7}));
    EXPECT_EQ(all(TokenFile((scratch / "a.bin").string())), (Read{5, 65535, 7}));
    put(scratch / "b.bin", header(20240801, 7, 2) + raw<std::uint32_t>({128000, 7}));
    EXPECT_EQ(all(TokenFile((scratch / "b.bin").string())), (Read{128000, 7}));
}

TEST(TokenFile, ReadsShardsAsOneSequenceWhateverTheirFormats) {
    const Scratch scratch;
    put(scratch / "x_2.bin", header(20240801, 7, 2) + raw<std::uint32_t>({300, 301}));
    put(scratch / "x_1.bin", raw<std::uint16_t>({100, 101, 102}));
    put(scratch / "x_3.bin", raw<std::uint16_t>({400}));
    put(scratch / "notes.txt", "no tokens");
    const Read everything = {100, 101, 102, 300, 301, 400};
    for (const std::string& where : {scratch.path().string(), (scratch / "x_*.bin").string()}) {
        const TokenFile file(where);
        EXPECT_EQ(file.shards(), 3u);
        EXPECT_EQ(all(file), everything);
        for (std::size_t begin = 0; begin <= 6; ++begin)
            for (std::size_t count = 0; begin + count <= 6; ++count) {
                Read some(count);
                file.read(begin, count, some.data());
                EXPECT_EQ(some, Read(everything.begin() + long(begin), everything.begin() + long(begin + count)));
            }
        Read room(8);
        EXPECT_ERROR(file.read(4, 3, room.data()), UsageError, "tokens 4 to 7 were asked for, but there are 6");
        EXPECT_ERROR(file.read(7, 0, room.data()), UsageError, "but there are 6");
        EXPECT_ERROR(file.read(1, ~std::size_t(0), room.data()), UsageError, "but there are 6");
    }
}

TEST(TokenFile, RefusesWhatIsCutOffOrDamagedByItsName) {
    const Scratch scratch;
    const auto refused = [&](const std::string& bytes, const std::string& fragment,
                             TokenFormat format = TokenFormat::automatic) {
        put(scratch / "bad.bin", bytes);
        const std::string path = (scratch / "bad.bin").string();
        EXPECT_ERROR(TokenFile(path, format), IoError, "bad.bin: ");
        EXPECT_ERROR(TokenFile(path, format), IoError, fragment);
    };
    refused("", "it holds no tokens");
    refused("abc", "its 3 bytes are not whole tokens of 2 each");
    refused("abcdef", "its 6 bytes are not whole tokens of 4 each", TokenFormat::uint32);
    refused("abcd", "it does not begin as llm.c's files do", TokenFormat::llmc);
    refused(header(20240520, 1, 3) + "abcd",
            "it has 1028 bytes, but its header says 3 tokens, which makes 1030; it is cut off");
    refused(header(20240520, 1, 1) + "abcd", "which makes 1026; it is damaged");
    refused(header(20240801, 7, 1) + "ab", "which makes 1028; it is cut off");
    refused(header(20240520, 2, 1) + "ab", "it is of llm.c's version 2, but 1");
    refused(header(20240520, 1, -1) + "ab", "its header says -1 tokens");
    refused(header(20240520, 1, 0), "it holds no tokens");
    for (const std::size_t bytes : {4u, 12u, 1022u, 1023u})
        refused(header(20240520, 1, 3).substr(0, bytes),
                fmt::format("has {} of the 1024 bytes of their header; it is cut off", bytes));
    refused(header(20240801, 7, 3).substr(0, 512), "it is cut off", TokenFormat::llmc);
    EXPECT_ERROR(TokenFile((scratch / "none.bin").string()), IoError, "none.bin");
    EXPECT_ERROR(TokenFile((scratch / "none*.bin").string()), IoError, "no file is called like that");
    std::filesystem::create_directory(scratch / "empty");
    EXPECT_ERROR(TokenFile((scratch / "empty").string()), IoError, "holds no .bin file");
}

// Said to be bare numbers, they are that, whatever they look like.
TEST(TokenFile, TakesTheBeginningOfAHeaderForTokensWhereItIsTold) {
    const Scratch scratch;
    put(scratch / "a.bin", raw<std::int32_t>({20240520, 1}));
    EXPECT_EQ(TokenFile((scratch / "a.bin").string(), TokenFormat::uint16).size(), 4u);
    EXPECT_EQ(all(TokenFile((scratch / "a.bin").string(), TokenFormat::uint32)), (Read{20240520, 1}));
}

TEST(TokenFile, SaysWhenAFileShrinksWhileItIsRead) {
    const Scratch scratch;
    put(scratch / "a.bin", raw<std::uint16_t>({1, 2, 3}));
    const TokenFile file((scratch / "a.bin").string());
    std::filesystem::resize_file(scratch / "a.bin", 4);
    Read room(3);
    EXPECT_ERROR(file.read(0, 3, room.data()), IoError, "a.bin");
}

TEST(TokenWriter, WritesWhatIsReadBackInEveryFormat) {
    const Scratch scratch;
    Ids tokens(700'000);
    std::iota(tokens.begin(), tokens.end(), 0);
    for (const std::size_t vocabulary : {65536u, 65537u})
        for (const TokenFormat format :
             {TokenFormat::automatic, TokenFormat::uint16, TokenFormat::uint32, TokenFormat::llmc}) {
            if (format == TokenFormat::uint16 && vocabulary > 65536) continue;
            Ids some = tokens;
            for (TokenId& token : some) token %= vocabulary;
            TokenWriter writer(scratch / "t.bin", format, vocabulary);
            for (std::size_t at = 0; at < some.size(); at += 1000) writer.write(std::span(some).subspan(at, 1000));
            EXPECT_EQ(writer.count(), some.size());
            writer.commit();
            const TokenFile file((scratch / "t.bin").string(),
                                 format == TokenFormat::uint32 ? TokenFormat::uint32 : TokenFormat::automatic);
            EXPECT_EQ(all(file), Read(some.begin(), some.end())) << writer.format_name();
        }
    EXPECT_EQ(TokenWriter(scratch / "u.bin", TokenFormat::automatic, 65536).format_name(), "uint16");
    EXPECT_EQ(TokenWriter(scratch / "u.bin", TokenFormat::automatic, 65537).format_name(), "llmc uint32");
    EXPECT_EQ(TokenWriter(scratch / "u.bin", TokenFormat::llmc, 257).format_name(), "llmc uint16");
}

TEST(TokenWriter, LeavesNothingBehindWithoutCommit) {
    const Scratch scratch;
    put(scratch / "t.bin", "old");
    {
        TokenWriter writer(scratch / "t.bin", TokenFormat::uint16, 300);
        writer.write(Ids(1'000'000, 7));
    }
    EXPECT_EQ(scratch.names(), (std::vector<std::string>{"t.bin"}));
    EXPECT_EQ(read_file(scratch / "t.bin"), "old");
}

TEST(TokenWriter, RefusesWhatDoesNotFit) {
    const Scratch scratch;
    EXPECT_ERROR(TokenWriter(scratch / "t.bin", TokenFormat::uint16, 65537), UsageError,
                 "a vocabulary of 65537 tokens does not fit uint16; choose llmc or uint32");
    TokenWriter writer(scratch / "t.bin", TokenFormat::uint16, 300);
    EXPECT_ERROR(writer.write(Ids{300}), UsageError, "the token 300 is not one of a vocabulary of 300");
    EXPECT_ERROR(parse_token_format("int8"), UsageError, "none of uint16, uint32, llmc");
}

}  // namespace
}  // namespace invar::text
