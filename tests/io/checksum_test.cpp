#include "invar/io/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace invar {

TEST(Checksum, AgreesWithThePublishedVectors) {
    std::string ascending, descending;
    for (int i = 0; i < 32; ++i) ascending += char(i), descending += char(31 - i);
    for (auto* sum : {&crc32c, &crc32c_portable}) {
        EXPECT_EQ(sum("", 0), 0u);
        EXPECT_EQ(sum("123456789", 0), 0xE3069283u);
        EXPECT_EQ(sum(std::string(32, '\0'), 0), 0x8A9136AAu);
        EXPECT_EQ(sum(std::string(32, '\xff'), 0), 0x62A8AB43u);
        EXPECT_EQ(sum(ascending, 0), 0x46DD794Eu);
        EXPECT_EQ(sum(descending, 0), 0x113FDB5Cu);
    }
}

TEST(Checksum, InstructionAndTableAgreeAtEveryLengthAndAlignment) {
    std::string bytes;
    for (int i = 0; i < 300; ++i) bytes += char(i * 37 + 11);
    for (std::size_t from = 0; from < 9; ++from)
        for (std::size_t count = 0; count < 80; ++count) {
            const std::string_view piece = std::string_view(bytes).substr(from, count);
            EXPECT_EQ(crc32c(piece), crc32c_portable(piece)) << from << " " << count;
        }
}

TEST(Checksum, OfPiecesIsThatOfTheWhole) {
    const std::string_view text = "low precision, high confidence";
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
        EXPECT_EQ(crc32c(text.substr(cut), crc32c(text.substr(0, cut))), crc32c(text));
}

TEST(Checksum, OfPiecesReadApartCombinesToThatOfTheWhole) {
    std::string bytes;
    for (int i = 0; i < 70'000; ++i) bytes += char(i * 41 + (i >> 8));
    for (const std::size_t cut : {0, 1, 7, 8, 4096, 65'536, 69'999, 70'000}) {
        const std::string_view first = std::string_view(bytes).substr(0, cut),
                               rest = std::string_view(bytes).substr(cut);
        EXPECT_EQ(crc32c_combine(crc32c(first), crc32c(rest), rest.size()), crc32c(bytes)) << cut;
    }
}

TEST(Checksum, OfAWholeIsWhatItsPartsAddInAnyOrder) {
    std::string bytes;
    for (int i = 0; i < 5000; ++i) bytes += char(i * 41 + (i >> 8));
    EXPECT_EQ(crc32c_of_zeros(1000), crc32c(std::string(1000, '\0')));
    const std::string_view all = bytes;
    const std::size_t cuts[] = {0, 1, 8, 700, 4096, 5000};
    std::uint32_t sum = crc32c_of_zeros(all.size());
    for (const std::size_t i : {3, 0, 4, 2, 1})
        sum ^= crc32c_added(all.substr(cuts[i], cuts[i + 1] - cuts[i]), all.size() - cuts[i + 1]);
    EXPECT_EQ(sum, crc32c(all));
}

}  // namespace invar
