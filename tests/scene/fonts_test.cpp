#include "invar/scene/fonts.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "invar/core/error.h"
#include "rendered.h"

namespace invar::scene {

namespace {

namespace fs = std::filesystem;

class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "invar-fonts-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
        path = name;
    }
    ~Folder() { fs::remove_all(path); }
    fs::path path;
};

std::set<std::string> files_of(const FontSet& fonts) {
    std::set<std::string> files;
    for (std::size_t i = 0; i < fonts.size(); ++i) files.insert(fonts[i].path.filename());
    return files;
}

template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        return error.what();
    }
    return "nothing";
}

}  // namespace

TEST(FontSet, HasOtherFamiliesForTestsThanForTraining) {
    const FontSet all = FontSet::all(), train = FontSet::train(), test = FontSet::test();
    EXPECT_EQ(train.size() + test.size(), all.size());
    std::vector<std::string> both;
    std::ranges::set_intersection(train.families(), test.families(), std::back_inserter(both));
    EXPECT_TRUE(both.empty());
    for (const std::string& family : test.families()) EXPECT_TRUE(is_test_family(family)) << family;
    const std::set<std::string> trained = files_of(train);
    for (const std::string& file : files_of(test)) EXPECT_FALSE(trained.contains(file)) << file;
}

TEST(FontSet, SplitsFamiliesByNameAloneAndKeepsSistersTogether) {
    EXPECT_TRUE(is_test_family("DejaVu Serif"));
    EXPECT_TRUE(is_test_family("Liberation Sans"));
    EXPECT_TRUE(is_test_family("FreeMono"));
    for (const char* family :
         {"DejaVu Sans", "DejaVu Sans Mono", "Liberation Serif", "Liberation Mono", "FreeSans", "FreeSerif"})
        EXPECT_FALSE(is_test_family(family)) << family;
    EXPECT_TRUE(is_test_family("Liberation Sans Narrow"));
    EXPECT_TRUE(is_test_family("DejaVu Serif Condensed Light"));
    int tests = 0;
    for (int i = 0; i < 1000; ++i) tests += is_test_family("Family " + std::to_string(i));
    EXPECT_NEAR(tests, 300, 60);
}

TEST(FontSet, ReadsOutlinesOfAllPrintableCharacters) {
    const FontSet fonts = FontSet::all(testing::package_folders());
    for (std::size_t i = 0; i < fonts.size(); ++i) {
        const Font& font = fonts[i];
        SCOPED_TRACE(font.path.string());
        ASSERT_EQ(font.glyphs.size(), 95u);
        for (char c = '!'; c <= '~'; ++c) {
            const Glyph& glyph = font.glyph(c);
            EXPECT_FALSE(glyph.contours.empty()) << c;
            EXPECT_GT(glyph.ink.height(), 0) << c;
            EXPECT_GT(glyph.advance, 0.1) << c;
            EXPECT_LT(glyph.advance, 1.5) << c;
        }
        EXPECT_TRUE(font.glyph(' ').contours.empty());
        // A capital stands on the baseline, and a g reaches below it.
        EXPECT_NEAR(font.glyph('E').ink.bottom, 0, 0.03);
        EXPECT_LT(font.glyph('E').ink.top, -0.5);
        EXPECT_GT(font.glyph('g').ink.bottom, 0.1);
        EXPECT_EQ(font.glyph('O').contours.size(), 2u);
        EXPECT_LT(detect::signed_area(font.glyph('O').contours[0]) * detect::signed_area(font.glyph('O').contours[1]),
                  0)
            << "a hole runs the other way round";
    }
}

TEST(FontSet, NamesPackagesWhereThereAreNoFonts) {
    const Folder folder;
    const fs::path folders[] = {folder.path};
    EXPECT_EQ(error_of([&] { FontSet::all(folders); }),
              "no font with Latin letters in " + folder.path.string() +
                  "; install fonts-dejavu-core fonts-liberation fonts-freefont-ttf");
    std::ofstream(folder.path / "broken.ttf") << "no font";
    std::ofstream(folder.path / "empty.otf");
    ASSERT_EQ(mkfifo((folder.path / "pipe.ttf").c_str(), 0600), 0);  // nobody writes to it: to open it would wait
    EXPECT_NE(error_of([&] { FontSet::train(folders); }).find("no font with Latin letters"), std::string::npos);
    const FontSet test = FontSet::test();
    fs::copy_file(test[0].path, folder.path / "One.TTF");
    EXPECT_EQ(FontSet::test(folders).size(), 1u);
    EXPECT_NE(error_of([&] { FontSet::train(folders); }).find("none is left for training; install fonts-"),
              std::string::npos);
}

TEST(FontSet, CountsAFontOnceAndHasTheSameOrderWhereverItLies) {
    const Folder first, second;
    const FontSet system = FontSet::all();
    ASSERT_GE(system.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        fs::copy_file(system[i].path, first.path / system[i].path.filename());
        fs::copy_file(system[i].path, second.path / system[i].path.filename());
    }
    const fs::path folders[] = {second.path, first.path};
    const FontSet found = FontSet::all(folders);
    ASSERT_EQ(found.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(found[i].path.filename(), system[i].path.filename());
}

}  // namespace invar::scene
