// Files that are broken, cut short or made to do harm: one line that names the file, and no memory taken for it.
#include <gtest/gtest.h>

#include "invar/image/decode.h"
#include "invar/image/encode.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

namespace invar {

using namespace testing;

namespace {

std::string refusal(std::string_view file, const DecodeLimits& limits = {}) {
    const std::string line = message_of<IoError>([&] { decode(file, limits); });
    EXPECT_TRUE(line.starts_with("F: ")) << line;
    return line;
}

std::string jpeg_of_size(std::string file, unsigned height, unsigned width) {
    for (std::size_t at = 2; at + 9 < file.size(); ++at) {
        const auto marker = std::uint8_t(file[at + 1]);
        if (std::uint8_t(file[at]) != 0xff || (marker != 0xc0 && marker != 0xc2 && marker != 0xc9)) continue;
        file.replace(at + 5, 4, {char(height >> 8), char(height), char(width >> 8), char(width)});
        return file;
    }
    return "no frame";
}

void refuse_every_cut(const std::string& file) {
    ASSERT_NO_THROW(decode(file));
    for (std::size_t part = 0; part < 16; ++part) refusal(file.substr(0, file.size() * part / 16));
    for (const std::size_t missing : {1, 2, 5, 13}) refusal(file.substr(0, file.size() - missing));
}

}  // namespace

TEST(HostileImage, OfNoBytesOrNoImageIsRefused) {
    EXPECT_TRUE(has(refusal(""), "an empty file"));
    EXPECT_TRUE(has(refusal("GIF89a and so on"), "make it JPEG, PNG or WebP"));
    EXPECT_TRUE(has(refusal(std::string(5000, '\0')), "not an image"));
    EXPECT_TRUE(has(refusal("\xff\xd8\xff"), "JPEG"));
    EXPECT_TRUE(has(refusal("\x89PNG\r\n\x1a\n"), "PNG"));
    refusal("\xff\xd8\xff\xd9");
    refusal("RIFF\x04\0\0\0WEBP");
    refusal(std::string_view("RIFF\x04\0\0\0WEBP", 12));
}

TEST(HostileImage, CutShortIsRefusedWhereverItIsCut) {
    const Image picture = test_picture(64, 80);
    refuse_every_cut(make_jpeg(picture));
    refuse_every_cut(make_jpeg(picture, {.progressive = true}));
    refuse_every_cut(make_jpeg(picture, {.arithmetic = true}));
    refuse_every_cut(make_jpeg(picture, {.restart = 2}));
    refuse_every_cut(encode_png(picture));
    refuse_every_cut(make_png({80, 64, 8, 2, true},
                              [&](std::int64_t y, std::int64_t x, int c) { return unsigned(picture.at(y, x)[c]); }));
}

TEST(HostileImage, CutShortWithAnEndPutOnIsRefusedToo) {
    const std::string file = make_jpeg(test_picture(64, 80));
    for (std::size_t part = 9; part < 16; ++part) {
        const std::string cut = file.substr(0, file.size() * part / 16) + "\xff\xd9";
        EXPECT_TRUE(has(refusal(cut), "broken JPEG")) << part;
    }
}

TEST(HostileImage, ThatIsTooLargeIsRefusedByItsHeader) {
    const Image picture = test_picture(16, 16);
    EXPECT_TRUE(has(refusal(jpeg_of_size(make_jpeg(picture), 65500, 65500)), "65500 x 65500 pixels"));
    EXPECT_TRUE(has(refusal(jpeg_of_size(make_jpeg(picture), 65535, 65535)), "JPEG"));
    const std::string png = png_header({65535, 65535}) + png_chunk("IDAT", "x") + png_chunk("IEND", "");
    EXPECT_TRUE(has(refusal(png), "65535 x 65535 pixels (height x width), more than the 178956970"));
    const std::string wide = png_header({0x7fffffff, 0x7fffffff}) + png_chunk("IDAT", "x");
    refusal(wide);
    EXPECT_TRUE(has(refusal(encode_png(picture), {.most_pixels = 255}), "make it smaller"));
    EXPECT_NO_THROW(decode(encode_png(picture), {.most_pixels = 256}));
    EXPECT_TRUE(has(refusal(make_jpeg(picture), {.most_pixels = 255}), "more than the 255"));
}

TEST(HostileImage, WithMorePixelsThanItsBytesCanHoldIsRefused) {
    EXPECT_TRUE(has(refusal(jpeg_of_size(make_jpeg(test_picture(16, 16)), 13000, 13000)), "bytes cannot hold"));
    EXPECT_TRUE(has(refusal(png_header({13000, 13000}) + png_chunk("IDAT", "x")), "bytes cannot hold"));
    // While a picture of one colour, which is as small as can be, is taken.
    EXPECT_EQ(decode(encode_png(Image(900, 1100, 3, 77))), Image(900, 1100, 3, 77));
    EXPECT_EQ(decode(make_jpeg(Image(2000, 2000, 3, 128))), Image(2000, 2000, 3, 128));
}

TEST(HostileImage, OfNoPixelsIsRefused) {
    for (const auto& [height, width] : {std::pair{0, 5}, {5, 0}, {0, 0}})
        refusal(png_header({std::uint32_t(width), std::uint32_t(height)}) + png_chunk("IDAT", deflated("")) +
                png_chunk("IEND", ""));
    refusal(jpeg_of_size(make_jpeg(test_picture(16, 16)), 16, 0));
    refusal(jpeg_of_size(make_jpeg(test_picture(16, 16)), 0, 16));
}

TEST(HostileImage, WithATextThatUnpacksToGigabytesIsReadWithoutIt) {
    const Image picture = test_picture(16, 16);
    const std::string bomb = deflated(std::string(64 << 20, 'x'));
    for (const char* name : {"zTXt", "iCCP"}) {
        std::string file = encode_png(picture);
        file.insert(33, png_chunk(name, std::string("a\0\0", 3) + bomb));
        EXPECT_EQ(decode(file), picture) << name;
    }
}

TEST(HostileImage, WithMorePixelDataThanRowsIsReadWithoutTheRest) {
    const auto flat = [](std::int64_t, std::int64_t, int) { return 7u; };
    const std::string bomb = deflated(png_rows({8, 8}, flat) + std::string(64 << 20, '\0'));
    const std::string file = png_header({8, 8}) + png_chunk("IDAT", bomb) + png_chunk("IEND", "");
    try {
        EXPECT_EQ(decode(file), Image(8, 8, 3, 7));
    } catch (const IoError&) {  // as good
    }
}

TEST(HostileImage, WithAWrongChecksumOrPaletteIsRefused) {
    std::string file = encode_png(test_picture(16, 16));
    file[file.size() - 20] ^= 1;
    EXPECT_TRUE(has(refusal(file), "broken PNG"));
    refusal(make_png({4, 4, 8, 3}, [](std::int64_t, std::int64_t, int) { return 1u; }));  // no palette at all
    const std::string out_of_palette = make_png(
        {4, 4, 8, 3}, [](std::int64_t, std::int64_t, int) { return 200u; }, png_chunk("PLTE", "abcdef"));
    try {
        decode(out_of_palette);
    } catch (const IoError&) {
    }
}

TEST(HostileImage, OfThousandsOfScansIsRefused) {
    const Image picture = test_picture(32, 32);
    const std::string file = make_jpeg(picture, {.separate = true});
    EXPECT_EQ(decode(file), decode(make_jpeg(picture)));
    // The last scan again and again.
    const std::size_t last = file.rfind("\xff\xda");
    const std::string scan = file.substr(last, file.size() - 2 - last);
    std::string many = file.substr(0, file.size() - 2);
    for (int i = 0; i < 50; ++i) many += scan;
    EXPECT_EQ(decode(many + "\xff\xd9"), decode(file));
    for (int i = 0; i < 2000; ++i) many += scan;
    EXPECT_TRUE(has(refusal(many + "\xff\xd9"), "more than 100 scans"));
}

TEST(HostileImage, CutShortIsRefusedAlsoWhereThePartThatIsAskedForIsThere) {
    const std::string file = make_jpeg(test_picture(64, 80));
    const PixelBox top{0, 0, 8, 8};
    EXPECT_NO_THROW(decode_region(bytes_of(file), "F", top));
    const std::string cut = file.substr(0, file.size() - 100);
    EXPECT_TRUE(has(message_of<IoError>([&] { decode_region(bytes_of(cut), "F", top); }), "a truncated JPEG file"));
}

TEST(HostileImage, OfTwoComponentsIsRefusedForItsColours) {
    std::string file = make_jpeg(test_picture(16, 16, 1), {.colours = JpegKind::Colours::grey});
    const std::size_t frame = file.find("\xff\xc0");
    file[frame + 9] = 2;  // components
    refusal(file);
}

TEST(HostileImage, WithAnyByteTurnedIsAnImageOrARefusal) {
    for (const std::string& good : {make_jpeg(test_picture(24, 24)), encode_png(test_picture(24, 24)),
                                    make_jpeg(test_picture(24, 24), {.progressive = true})})
        for (std::size_t at = 0; at < good.size(); ++at) {
            std::string bad = good;
            bad[at] = char(bad[at] ^ 0x55);
            try {
                decode(bad, {.most_pixels = 1 << 20});
            } catch (const IoError& error) {
                EXPECT_EQ(std::string_view(error.what()).substr(0, 3), "F: ");
            }
        }
}

TEST(HostileImage, ThatIsNoFileIsRefused) {
    const Scratch scratch;
    EXPECT_TRUE(has(message_of<IoError>([&] { read_image(scratch / "none.png"); }), "none.png"));
    EXPECT_TRUE(has(message_of<IoError>([&] { read_image(scratch.path()); }), scratch.path().string()));
}

}  // namespace invar
