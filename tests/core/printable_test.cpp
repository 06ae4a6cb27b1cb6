#include "invar/core/printable.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(Printable, LeavesTextOfAnyLanguageAsItIs) {
    for (const char* text : {"", "plain text", "Größe", "精度", "דיוק", "naïve 🙂", "a\\nb \"c\""}) {
        EXPECT_EQ(printable(text), text);
        EXPECT_EQ(printable_lines(text), text);
    }
}

TEST(Printable, ShowsControlCharactersByTheirNumber) {
    EXPECT_EQ(printable("a\x1b[31mb\x07"), "a\\u001b[31mb\\u0007");
    EXPECT_EQ(printable(std::string_view("a\0b\x7f", 4)), "a\\u0000b\\u007f");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u009b31m")
        << "the eight-bit way to begin an escape sequence";
    EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
    EXPECT_EQ(printable_lines("a\nb\tc\r"), "a\nb\tc\\r");
}

TEST(Printable, ShowsWhatReordersTheLine) {
    for (const char32_t code : {0x61c, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066,
                                0x2067, 0x2068, 0x2069, 0xfeff})
        EXPECT_TRUE(is_control(code)) << std::hex << std::uint32_t(code);
    EXPECT_EQ(printable("fp16 \u202e SSAP"), "fp16 \\u202e SSAP");
    EXPECT_EQ(printable("\u2066x\u2069"), "\\u2066x\\u2069");
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
    EXPECT_EQ(printable("\xff\x80ok\xc3"), "\\xff\\x80ok\\xc3");
    EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "an overlong slash";
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

TEST(Printable, DoneTwiceIsAsDoneOnce) {
    const std::string once = printable("a\n\x1b\xff\u202e\\");
    EXPECT_EQ(printable(once), once);
}

}  // namespace
}  // namespace invar
