#include "invar/image/orientation.h"

#include <gtest/gtest.h>

#include "invar/image/encode.h"
#include "invar/image/transform.h"
#include "tests/image/files.h"

namespace invar {

using namespace testing;

namespace {

const std::string kPrefix("Exif\0\0", 6);

// An image of letters, one a pixel.
Image letters(const std::vector<std::string>& rows) {
    Image image(std::int64_t(rows.size()), std::int64_t(rows[0].size()), 1);
    for (std::size_t y = 0; y < rows.size(); ++y)
        for (std::size_t x = 0; x < rows[y].size(); ++x)
            *image.at(std::int64_t(y), std::int64_t(x)) = std::uint8_t(rows[y][x]);
    return image;
}

// How cameras that were held like that store the picture abc/def.
const std::vector<std::vector<std::string>> kStored = {{"abc", "def"},     {"cba", "fed"},     {"fed", "cba"},
                                                       {"def", "abc"},     {"ad", "be", "cf"}, {"cf", "be", "ad"},
                                                       {"fc", "eb", "da"}, {"da", "eb", "fc"}};

Orientation read(const std::string& block) {
    return exif_orientation(bytes_of(block));
}

}  // namespace

TEST(Orientation, TurnsAllEightUpright) {
    for (int number = 1; number <= 8; ++number)
        EXPECT_EQ(Orientation::of_exif(number).upright(letters(kStored[std::size_t(number - 1)])),
                  letters({"abc", "def"}))
            << number;
}

TEST(Orientation, TurnsBoxesAsItTurnsPixels) {
    const Image stored = test_picture(9, 14);
    for (int number = 1; number <= 8; ++number) {
        const Orientation orientation = Orientation::of_exif(number);
        const Image upright = orientation.upright(stored);
        EXPECT_EQ(upright.size(), orientation.upright(stored.size()));
        const PixelBox box{2, 1, 5, 4};
        const PixelBox there = orientation.to_stored(box, stored.size());
        EXPECT_EQ(orientation.upright(crop(stored, there)), crop(upright, box)) << number;
        const RealBox back = orientation.to_upright(
            {double(there.top), double(there.left), double(there.height), double(there.width)}, stored.size());
        EXPECT_EQ(back.top, 2) << number;
        EXPECT_EQ(back.left, 1) << number;
        EXPECT_EQ(back.height, 5) << number;
    }
}

TEST(Orientation, IsReadFromJpegAndPngInBothByteOrders) {
    const Image picture = test_picture(24, 40);
    const std::string jpeg = make_jpeg(picture), png = encode_png(picture);
    const Image stored = decode(jpeg);
    for (int number = 1; number <= 8; ++number)
        for (const bool big : {false, true}) {
            const Orientation orientation = Orientation::of_exif(number);
            const std::string exif = exif_block(number, big);
            const std::string turned = with_segment(jpeg, 0xe1, kPrefix + exif);
            EXPECT_EQ(decode(turned), orientation.upright(stored)) << number << big;
            EXPECT_EQ(image_size(bytes_of(turned), "F"), orientation.upright(stored.size()));
            std::string with_chunk = png;
            with_chunk.insert(33, png_chunk("eXIf", exif));
            EXPECT_EQ(decode(with_chunk), orientation.upright(picture)) << number << big;
        }
}

TEST(Orientation, HoldsForPartsOfAJpegToo) {
    const std::string jpeg = make_jpeg(test_picture(60, 100));
    for (int number = 1; number <= 8; ++number) {
        const std::string file = with_segment(jpeg, 0xe1, kPrefix + exif_block(number));
        const Image whole = decode(file);
        const PixelBox box{7, 11, 30, 20};
        const DecodedRegion region = decode_region(bytes_of(file), "F", box);
        EXPECT_EQ(crop(region.image, {std::int64_t(region.box.top), std::int64_t(region.box.left), 30, 20}),
                  crop(whole, box))
            << number;
    }
}

TEST(Orientation, IsUprightWhereTheTagsAreBroken) {
    EXPECT_FALSE(read(exif_block(6)).is_upright());
    EXPECT_TRUE(read(exif_block(0)).is_upright());
    EXPECT_TRUE(read(exif_block(9)).is_upright());
    EXPECT_TRUE(read("").is_upright());
    for (std::size_t size = 0; size < 20; ++size) EXPECT_TRUE(read(exif_block(6).substr(0, size)).is_upright());
    // Every byte of the header and the entry set to what leads astray: no offset is followed out of the block.
    for (std::size_t at = 0; at < exif_block(6).size(); ++at)
        for (const int value : {0, 0x7f, 0x80, 0xff})
            for (const bool big : {false, true}) {
                std::string block = exif_block(6, big);
                block[at] = char(value);
                read(block);
            }
    std::string far = exif_block(6);
    far.replace(4, 4, "\xff\xff\xff\xff");  // the directory's place
    EXPECT_TRUE(read(far).is_upright());
    far.replace(4, 4, "\xfe\xff\xff\x7f");
    EXPECT_TRUE(read(far).is_upright());
    std::string many = exif_block(6);
    many.replace(8, 4, "\xff\xff\x00\x00", 4);  // 65535 entries
    EXPECT_TRUE(read(many).is_upright());
    const Image picture = test_picture(8, 8);
    EXPECT_EQ(decode(with_segment(make_jpeg(picture), 0xe1, kPrefix + far)), decode(make_jpeg(picture)));
}

}  // namespace invar
