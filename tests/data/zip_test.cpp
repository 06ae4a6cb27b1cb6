// Zip archives read member by member: what is in them, and every way in which they can lie about it.
#include "invar/data/zip.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"
#include "tests/data/zip_bytes.h"

namespace invar {
namespace {

using testing::crc_of, testing::ZipMaker;

// Everything that an archive holds, in pieces of this size.
std::vector<std::pair<std::string, std::string>> contents(const std::string& archive, std::size_t piece = 7) {
    const ReadAt read = [&](std::uint64_t offset, char* out, std::size_t bytes) {
        ASSERT_LE(offset + bytes, archive.size());
        archive.copy(out, bytes, std::size_t(offset));
    };
    std::vector<std::pair<std::string, std::string>> all;
    const std::string file = "F";
    for (const ZipMember& member : zip_members(read, archive.size(), file)) {
        std::string& plain = all.emplace_back(member.name, "").second;
        ZipStream stream(member, read, file);
        std::string buffer(piece, '\0');
        while (const std::size_t count = stream.read(buffer.data(), buffer.size())) plain.append(buffer, 0, count);
    }
    return all;
}

const std::string kLong = [] {
    std::string text;
    for (int i = 0; i < 50000; ++i) text += "line " + std::to_string(i * 7919 % 5000) + "\n";
    return text;
}();

TEST(Zip, ReadsStoredDeflatedAndLargeMembers) {
    const std::string archive = ZipMaker()
                                    .add("a", "hello")
                                    .add("b/c", kLong, true)
                                    .add("d", "", false)
                                    .add("e", "far away", true, ZipMaker::Large::yes)
                                    .bytes();
    for (const std::size_t piece : {1u, 7u, 100000u, 10000000u}) {
        const auto all = contents(archive, piece);
        ASSERT_EQ(all.size(), 4u);
        EXPECT_EQ(all[0], (std::pair<std::string, std::string>("a", "hello")));
        EXPECT_EQ(all[1].second, kLong);
        EXPECT_EQ(all[2].second, "");
        EXPECT_EQ(all[3].second, "far away");
    }
}

TEST(Zip, RefusesMembersThatOverlap) {
    ZipMaker maker;
    maker.add("a", "some bytes of a member");
    const std::uint64_t end = maker.size();
    maker.entry("b", 22, 22, crc_of("some bytes of a member"), false, 0);
    EXPECT_ERROR(contents(maker.bytes()), IoError, "overlap");
    // One that holds the header of the next one, as archives do that unpack to thousands of times their size.
    ZipMaker quoted;
    quoted.add_raw("outer", std::string(5, 'x'), 40, 0, true);
    EXPECT_ERROR(contents(ZipMaker(quoted).entry("inner", 3, 3, 0, false, 10).bytes()), IoError, "is not where");
    EXPECT_GT(end, 0u);
}

TEST(Zip, BelievesNoSizeAndNoPlace) {
    const std::string plain = "0123456789", packed = testing::deflated(plain);
    const std::uint32_t crc = crc_of(plain);
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", packed, 5, crc_of("01234"), true).bytes()), IoError,
                 "does not have the 5 bytes");
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", packed, 1 << 30, crc, true).bytes()), IoError,
                 "does not have the 1073741824 bytes");
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", plain, 5, crc, false).bytes()), IoError, "and 10 of them are there");
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", packed, 10, crc ^ 1, true).bytes()), IoError, "checksum");
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", plain, 10, crc ^ 1, false).bytes()), IoError, "checksum");
    EXPECT_ERROR(contents(ZipMaker().add_raw("a", packed.substr(0, 4), 10, crc, true).bytes()), IoError, "damaged");
    EXPECT_ERROR(contents(ZipMaker().entry("a", 10, 10, 0, false, 1 << 20).bytes()), IoError, "beyond its end");
    for (const std::uint64_t size : {std::uint64_t(1) << 20, ~std::uint64_t(0), ~std::uint64_t(0) - 30})
        EXPECT_ERROR(
            contents(ZipMaker().add("x", "y").entry("a", size, size, 0, false, 0, ZipMaker::Large::yes).bytes()),
            IoError, "beyond its end");
    EXPECT_ERROR(
        contents(
            ZipMaker().add("x", "y").entry("a", 1, 1, 0, false, ~std::uint64_t(0) - 2, ZipMaker::Large::yes).bytes()),
        IoError, "beyond its end");
}

TEST(Zip, RefusesOrReadsAnArchiveThatIsCutOrChangedAnywhere) {
    const std::string whole =
        ZipMaker().add("a", "hello").add("b", std::string(300, 'b'), true, ZipMaker::Large::yes).bytes();
    ASSERT_EQ(contents(whole).size(), 2u);
    for (std::size_t cut = 0; cut < whole.size(); ++cut) EXPECT_THROW(contents(whole.substr(0, cut)), IoError) << cut;
    int refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at)
        for (const char bits : {'\x01', '\x7f', '\xff'}) {
            std::string changed = whole;
            changed[at] = char(changed[at] ^ bits);
            try {
                contents(changed);
            } catch (const IoError&) {
                ++refused;
            }
        }
    EXPECT_GT(refused, 300) << "names, dates and attributes alone do not matter";
}

}  // namespace
}  // namespace invar
