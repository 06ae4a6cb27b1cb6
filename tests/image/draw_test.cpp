#include "invar/image/draw.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "invar/image/font.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

namespace invar {

using namespace testing;

namespace {

constexpr Rgb kRed{255, 0, 0};

Rgb at(const Image& image, std::int64_t y, std::int64_t x) {
    return {image.at(y, x)[0], image.at(y, x)[1], image.at(y, x)[2]};
}

// The ink of an image as a picture.
std::string ink(const Image& image) {
    std::string text;
    for (std::int64_t y = 0; y < image.height; ++y) {
        for (std::int64_t x = 0; x < image.width; ++x) text += image.at(y, x)[0] > 127 ? '#' : '.';
        text += '\n';
    }
    return text;
}

}  // namespace

TEST(DrawLine, CoversThePixelsItRunsThrough) {
    Image image(5, 8);
    draw_line(image, {1.5, 2.5}, {5.5, 2.5}, kRed);
    EXPECT_EQ(ink(image), "........\n........\n.#####..\n........\n........\n");
    for (std::int64_t x = 1; x <= 5; ++x) EXPECT_EQ(at(image, 2, x), kRed);
    Image thick(7, 8);
    draw_line(thick, {3.5, -5}, {3.5, 50}, kRed, 3);
    EXPECT_EQ(ink(thick).substr(0, 9), "..###...\n");
}

TEST(DrawLine, HasSmoothEdges) {
    Image image(20, 20);
    draw_line(image, {0, 0}, {20, 10}, kRed, 2);
    int partly = 0;
    for (std::int64_t y = 0; y < 20; ++y)
        for (std::int64_t x = 0; x < 20; ++x) partly += image.at(y, x)[0] > 20 && image.at(y, x)[0] < 235;
    EXPECT_GT(partly, 10);
}

TEST(Draw, LeavesOutWhatLiesOutside) {
    Image image(10, 10, 3, 50);
    const Image before = image;
    draw_line(image, {-1e12, -1e12}, {-5, -5}, kRed, 2);
    draw_line(image, {100, 3}, {200, 4}, kRed, 2);
    fill_rectangle(image, {-20, -20, 10, 10}, kRed);
    fill_rectangle(image, {20, 3, 10, 10}, kRed);
    draw_text(image, -100, 3, "away", kRed);
    paste(image, before, 30, 30);
    EXPECT_EQ(image, before);
    draw_line(image, {-1e12, 5.5}, {1e12, 5.5}, kRed);
    EXPECT_EQ(at(image, 5, 0), kRed);
    fill_rectangle(image, {8, 8, 100, 100}, kRed);
    EXPECT_EQ(at(image, 9, 9), kRed);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(has(message_of<UsageError>([&] { draw_line(image, {nan, 0}, {1, 1}, kRed); }), "no place"));
    EXPECT_TRUE(has(message_of<UsageError>([&] { draw_line(image, {0, 0}, {1, 1}, kRed, 0); }), "thick"));
}

TEST(Draw, ClosesPolygonsAndFramesBoxes) {
    Image image(9, 9);
    const ImagePoint corners[] = {{1.5, 1.5}, {7.5, 1.5}, {7.5, 7.5}, {1.5, 7.5}};
    draw_polygon(image, corners, kRed);
    Image framed(9, 9);
    draw_rectangle(framed, {1, 1, 7, 7}, kRed);
    EXPECT_EQ(ink(image), ink(framed));
    EXPECT_EQ(ink(framed),
              ".........\n.#######.\n.#.....#.\n.#.....#.\n.#.....#.\n.#.....#.\n.#.....#.\n.#######.\n.........\n");
}

TEST(DrawText, LooksLikeItsLetters) {
    Image image(7, 11);
    draw_text(image, 0, 0, "Hi", {255, 255, 255});
    EXPECT_EQ(ink(image),
              "#...#...#..\n#...#......\n#...#..##..\n#####...#..\n#...#...#..\n#...#...#..\n#...#..###.\n");
    EXPECT_EQ(text_size("Hi"), (ImageSize{7, 11}));
    EXPECT_EQ(text_size("Hi", 3), (ImageSize{21, 33}));
    EXPECT_EQ(text_size("a\nbc"), (ImageSize{15, 11}));
    EXPECT_EQ(text_size(""), (ImageSize{0, 0}));
}

TEST(DrawText, TellsAllCharactersApart) {
    std::set<std::string> glyphs;
    for (char c = ' '; c <= '~'; ++c) {
        Image image(7, 5);
        draw_text(image, 0, 0, std::string(1, c), {255, 255, 255});
        EXPECT_TRUE(glyphs.insert(ink(image)).second) << c;
    }
    Image other(7, 5), question(7, 5);
    draw_text(other, 0, 0, "\xff", kRed), draw_text(question, 0, 0, "?", kRed);
    EXPECT_EQ(other, question);
}

TEST(DrawLabel, StaysInsideTheImage) {
    Image image(20, 40);
    draw_label(image, 100, 100, "ok", {255, 255, 255}, {0, 0, 9});
    EXPECT_EQ(at(image, 19, 39), (Rgb{0, 0, 9}));
    EXPECT_EQ(at(image, 0, 0), (Rgb{}));
}

TEST(ContactSheet, HasEveryImageInItsPlaceWithItsCaption) {
    std::vector<Image> images;
    for (int i = 0; i < 5; ++i) images.emplace_back(20, 30, i == 3 ? 1 : 3, std::uint8_t(40 * i + 20));
    const std::vector<std::string> captions = {"a", "b", "c", "d", "e"};
    const Image sheet = contact_sheet(images, captions, 2);
    EXPECT_EQ(sheet.size(), (ImageSize{4 + 3 * (20 + 9 + 4), 4 + 2 * 34}));
    EXPECT_EQ(at(sheet, 4, 4), (Rgb{20, 20, 20}));
    EXPECT_EQ(at(sheet, 4, 38), (Rgb{60, 60, 60}));
    EXPECT_EQ(at(sheet, 4 + 33, 38), (Rgb{140, 140, 140})) << "a grey one";
    EXPECT_EQ(at(sheet, 4 + 66 + 19, 4 + 29), (Rgb{180, 180, 180}));
    EXPECT_EQ(at(sheet, 0, 0), (Rgb{255, 255, 255}));
    EXPECT_NE(ink(sheet), ink(contact_sheet(images, std::vector<std::string>(5, "x"), 2)));
    EXPECT_TRUE(has(message_of<UsageError>([&] { contact_sheet(images, std::vector<std::string>(2), 2); }),
                    "2 captions for 5 images"));
    EXPECT_TRUE(has(message_of<UsageError>([&] { contact_sheet({}, {}, 2); }), "0 images"));
}

}  // namespace invar
