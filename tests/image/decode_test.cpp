// Files of every kind that are as they should be.
#include "invar/image/decode.h"

#include <gtest/gtest.h>

#include <cmath>

#include "invar/image/encode.h"
#include "invar/image/orientation.h"
#include "invar/image/transform.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

namespace invar {

using namespace testing;

namespace {

using Colours = JpegKind::Colours;

// The sample of a picture at more or fewer bits.
Sample sampled(const Image& picture, int bits) {
    return [picture, bits](std::int64_t y, std::int64_t x, int c) -> unsigned {
        const unsigned value = c < picture.channels ? picture.at(y, x)[c] : unsigned(x * 16 + y) % 256;
        return bits == 16 ? value << 8 | (255 - value) : value >> (8 - bits);
    };
}

Image repeated(const Image& grey) {
    Image out(grey.height, grey.width);
    for (std::size_t i = 0; i < out.pixels.size(); ++i) out.pixels[i] = grey.pixels[i / 3];
    return out;
}

}  // namespace

TEST(DecodePng, ReadsRgbAndWhatItWroteItself) {
    const Image picture = test_picture(13, 21);
    EXPECT_EQ(decode(make_png({21, 13}, sampled(picture, 8))), picture);
    EXPECT_EQ(decode(encode_png(picture)), picture);
    const Image grey = test_picture(7, 9, 1);
    EXPECT_EQ(decode(encode_png(grey)), repeated(grey));
}

TEST(DecodePng, ReadsInterlacedRows) {
    const Image picture = test_picture(13, 21);
    EXPECT_EQ(decode(make_png({21, 13, 8, 2, true}, sampled(picture, 8))), picture);
    EXPECT_EQ(decode(make_png({3, 1, 8, 2, true}, sampled(picture, 8))), crop(picture, {0, 0, 1, 3}));
}

TEST(DecodePng, KeepsTheUpperEightOfSixteenBits) {
    const Image picture = test_picture(6, 5), grey = test_picture(6, 5, 1);
    EXPECT_EQ(decode(make_png({5, 6, 16, 2}, sampled(picture, 16))), picture);
    EXPECT_EQ(decode(make_png({5, 6, 16, 0}, sampled(grey, 16))), repeated(grey));
    EXPECT_EQ(decode(make_png({5, 6, 16, 6}, sampled(picture, 16))), picture);
}

TEST(DecodePng, SpreadsFewBitsOverTheWholeRange) {
    for (const int bits : {1, 2, 4}) {
        const Image grey = test_picture(5, 11, 1);
        Image expected = grey;
        const int most = (1 << bits) - 1;
        for (std::uint8_t& value : expected.pixels) value = std::uint8_t((value >> (8 - bits)) * 255 / most);
        EXPECT_EQ(decode(make_png({11, 5, bits, 0}, sampled(grey, bits))), repeated(expected)) << bits;
    }
}

TEST(DecodePng, LeavesAlphaOut) {
    const Image picture = test_picture(6, 5), grey = test_picture(6, 5, 1);
    EXPECT_EQ(decode(make_png({5, 6, 8, 6}, sampled(picture, 8))), picture);
    EXPECT_EQ(decode(make_png({5, 6, 8, 4}, sampled(grey, 8))), repeated(grey));
}

TEST(DecodePng, LooksUpPalettesAndLeavesTheirTransparencyOut) {
    std::string palette, alpha;
    for (int i = 0; i < 16; ++i) palette += {char(i * 16), char(255 - i), char(i)}, alpha += char(i * 3);
    for (const int bits : {4, 8}) {
        const std::string file = make_png(
            {7, 3, bits, 3}, [](std::int64_t y, std::int64_t x, int) { return unsigned(x + y * 3) % 16; },
            png_chunk("PLTE", palette) + png_chunk("tRNS", alpha));
        const Image image = decode(file);
        ASSERT_EQ(image.size(), (ImageSize{3, 7}));
        for (std::int64_t y = 0; y < 3; ++y)
            for (std::int64_t x = 0; x < 7; ++x) {
                const int index = int(x + y * 3) % 16;
                EXPECT_EQ(image.at(y, x)[0], index * 16);
                EXPECT_EQ(image.at(y, x)[1], 255 - index);
                EXPECT_EQ(image.at(y, x)[2], index);
            }
    }
}

TEST(DecodePng, TakesTheFirstFrameOfAnAnimation) {
    const Image picture = test_picture(6, 5);
    std::string file = make_png({5, 6}, sampled(picture, 8), png_chunk("acTL", std::string("\0\0\0\2\0\0\0\0", 8)));
    file.insert(file.size() - 12, png_chunk("fdAT", "\0\0\0\1 not looked at"));
    EXPECT_EQ(decode(file), picture);
}

TEST(DecodeJpeg, ReadsColoursAndGreyOfEverySampling) {
    const Image picture = resize(test_picture(90, 120), {45, 61});
    for (const bool progressive : {false, true})
        for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
            const Image back = decode(make_jpeg(
                picture, {.quality = 98, .horizontal = horizontal, .vertical = vertical, .progressive = progressive}));
            ASSERT_EQ(back.size(), picture.size());
            double sum = 0;
            for (std::size_t i = 0; i < back.pixels.size(); ++i) sum += std::abs(back.pixels[i] - picture.pixels[i]);
            EXPECT_LT(sum / double(back.pixels.size()), 22) << horizontal << vertical << progressive;
        }
    EXPECT_LE(distance(decode(make_jpeg(picture, {.colours = Colours::rgb, .quality = 100})), picture), 3);
    EXPECT_LE(distance(decode(make_jpeg(picture, {.quality = 100, .horizontal = 1, .vertical = 1})), picture), 4);
    const Image grey = test_picture(30, 33, 1);
    const Image back = decode(make_jpeg(grey, {.colours = Colours::grey, .quality = 100}));
    EXPECT_LE(distance(back, repeated(grey)), 3);
}

TEST(DecodeJpeg, ReadsArithmeticCodeAndRestartMarkers) {
    const Image picture = test_picture(40, 50);
    const Image plain = decode(make_jpeg(picture));
    EXPECT_EQ(decode(make_jpeg(picture, {.arithmetic = true})), plain);
    EXPECT_EQ(decode(make_jpeg(picture, {.restart = 3})), plain);
}

// Inverted, as Adobe writes them: 255 is no ink.
TEST(DecodeJpeg, PrintsFourInksOnWhite) {
    struct Case {
        std::uint8_t inks[4];
        int rgb[3];
    };
    for (const Colours colours : {Colours::cmyk, Colours::ycck})
        for (const Case& c : {Case{{255, 255, 255, 255}, {255, 255, 255}}, Case{{255, 255, 255, 0}, {0, 0, 0}},
                              Case{{0, 255, 255, 255}, {0, 255, 255}}, Case{{255, 128, 64, 255}, {255, 128, 64}},
                              Case{{200, 100, 50, 128}, {100, 50, 25}}}) {
            std::vector<std::uint8_t> inks;
            for (int i = 0; i < 64; ++i) inks.insert(inks.end(), c.inks, c.inks + 4);
            const Image image = decode(make_jpeg(8, 8, inks, {.colours = colours, .quality = 100}));
            for (int k = 0; k < 3; ++k) EXPECT_NEAR(image.at(4, 4)[k], c.rgb[k], 3) << k;
        }
}

TEST(DecodeJpeg, DecodesAPartToTheSamePixelsAsTheWhole) {
    const Image picture = test_picture(75, 110);
    std::uint32_t random = 1;
    const auto below = [&](std::int64_t n) {
        random = random * 1664525 + 1013904223;
        return std::int64_t(random >> 8) % n;
    };
    for (const bool progressive : {false, true})
        for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}}) {
            const std::string file =
                make_jpeg(picture, {.horizontal = horizontal, .vertical = vertical, .progressive = progressive});
            const Image whole = decode(file);
            for (int n = 0; n < 60; ++n) {
                const std::int64_t height = 1 + below(75), width = 1 + below(110);
                const PixelBox box{below(76 - height), below(111 - width), height, width};
                const DecodedRegion region = decode_region(bytes_of(file), "F", box);
                const PixelBox within{std::int64_t(region.box.top), std::int64_t(region.box.left), height, width};
                ASSERT_EQ(crop(region.image, within), crop(whole, box)) << horizontal << vertical << progressive;
            }
        }
}

TEST(DecodeJpeg, ShrinksNoFurtherThanWhatIsAskedFor) {
    const std::string file = make_jpeg(resize(test_picture(30, 40), {480, 640}), {.quality = 100});
    const Image whole = decode(file);
    const PixelBox box{100, 60, 321, 402};
    struct Case {
        std::int64_t side;
        int shrink;
    };
    for (const Case& c : {Case{161, 1}, {160, 2}, {81, 2}, {80, 4}, {40, 8}, {1, 8}}) {
        const DecodedRegion region = decode_region(bytes_of(file), "F", box, ImageSize{c.side, c.side});
        EXPECT_EQ(region.box.height, 321.0 / c.shrink) << c.side;
        EXPECT_EQ(region.box.width, 402.0 / c.shrink) << c.side;
        EXPECT_LE(distance(resize(region.image, region.box, {40, 50}), resize(crop(whole, box), {40, 50})), 12);
    }
}

TEST(DecodeRegion, OfOtherFormatsIsTheWholeWithTheBox) {
    const Image picture = test_picture(20, 30);
    const DecodedRegion region = decode_region(bytes_of(encode_png(picture)), "F", {3, 4, 5, 6}, ImageSize{1, 1});
    EXPECT_EQ(region.image, picture);
    EXPECT_EQ(region.box.left, 4);
    EXPECT_TRUE(has(message_of<UsageError>([&] {
                        decode_region(bytes_of(encode_png(picture)), "F", {16, 4, 5, 6});
                    }),
                    "F: no box of 5 x 6"));
}

TEST(DecodeImage, GoesByContentNotByName) {
    const Scratch scratch;
    const Image picture = test_picture(6, 5);
    put(scratch / "a.jpg", encode_png(picture));
    EXPECT_EQ(read_image(scratch / "a.jpg"), picture);
    EXPECT_EQ(image_format(bytes_of(make_jpeg(picture))), ImageFormat::jpeg);
    EXPECT_EQ(image_format(bytes_of("GIF89a")), std::nullopt);
    write_png(scratch / "b.dat", picture);
    EXPECT_EQ(read_image(scratch / "b.dat"), picture);
    EXPECT_EQ(scratch.names().size(), 2u) << "nothing is left beside what was written";
}

TEST(DecodeImage, TellsTheSizeFromTheHeader) {
    EXPECT_EQ(image_size(bytes_of(make_jpeg(test_picture(12, 34))), "F"), (ImageSize{12, 34}));
    EXPECT_EQ(image_size(bytes_of(encode_png(test_picture(12, 34))), "F"), (ImageSize{12, 34}));
}

}  // namespace invar
