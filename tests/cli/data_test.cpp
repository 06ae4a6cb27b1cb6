// `invar data`, by the real program: figures, sheets, and what it refuses.
#include "invar/image/decode.h"
#include "tests/cli/program.h"
#include "tests/data/pictures.h"

namespace invar::cli {
namespace {

class DataCommand : public CliTest {
  protected:
    void write(const std::string& name, const Bytes& bytes) const {
        std::filesystem::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), long(bytes.size()));
    }
    void write_flowers(int count) const {
        for (int i = 0; i < count; ++i)
            for (const char* name : {"rose", "lily"})
                write(std::string("flowers/") + name + "/" + std::to_string(i) + ".jpg",
                      testing::jpeg_of(testing::picture(40, 50, i)));
    }
    ImageSize size_of(const std::string& sheet) const { return read_image(folder_ / sheet).size(); }
};

const std::vector<std::string> kFlowers = {"data", "data=image_folder", "data.root=flowers", "data.size=100"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

}  // namespace

TEST_F(DataCommand, ShowsAFolderOfImagesAndItsFigures) {
    write_flowers(10);
    const Result result = invar(with(kFlowers, {"-o", "sheet.png", "--count", "6"}));
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part :
         {"image_folder", "train", "val", "16", "lily", "rose", "50.0%", "pixels: mean [",
          "files: 50 x 40 to 50 x 40 pixels", "16 of 16 samples to train on looked at", "sheet.png: 6 images"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    EXPECT_TRUE(slurp(folder_ / "sheet.png").starts_with("\x89PNG"));
    // Three columns and two rows of 100 x 100, with gaps of 4 and captions of 7 pixels below.
    EXPECT_EQ(size_of("sheet.png").width, 4 + 3 * 104);
    EXPECT_EQ(size_of("sheet.png").height, 4 + 2 * (100 + 7 + 2 + 4));
}

TEST_F(DataCommand, ShowsTheSameForTheSameSeedAndOtherPixelsInAnotherEpoch) {
    write_flowers(4);
    for (const Words& words : {Words{"-o", "a.png"},
                               {"-o", "b.png", "data.num_workers=0"},
                               {"-o", "c.png", "--epoch", "2", "data.shuffle=false"},
                               {"-o", "d.png", "data.shuffle=false", "--epoch", "1"},
                               {"-o", "e.png", "--split", "val", "--epoch", "3"},
                               {"-o", "f.png", "--split", "val"}})
        ASSERT_EQ(invar(with(kFlowers, words)).code, 0);
    EXPECT_EQ(slurp(folder_ / "a.png"), slurp(folder_ / "b.png"));
    EXPECT_NE(slurp(folder_ / "c.png"), slurp(folder_ / "d.png"));
    EXPECT_EQ(slurp(folder_ / "e.png"), slurp(folder_ / "f.png"));
}

TEST_F(DataCommand, TellsOfBrokenFilesAndGoesOn) {
    write_flowers(4);
    write("flowers/rose/bad.jpg", {'n', 'o'});
    const Result told = invar(with(kFlowers, {"data.val_share=0.3", "seed=1"}));
    EXPECT_EQ(told.code, 0) << told.err;
    const Result val = invar(with(kFlowers, {"data.val_share=0.3", "seed=1", "--split", "val"}));
    EXPECT_EQ(val.code, 0) << val.err;
    EXPECT_TRUE(has(told.err + val.err, "1 sample cannot be read") && has(told.err + val.err, "flowers/rose/bad.jpg"))
        << told.err << val.err;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "image_folder-train.png"));
    const Result skipped = invar(with(kFlowers, {"data.on_broken=skip"}));
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_TRUE(has(skipped.out, "images cannot be read and is left out; the first: flowers/rose/bad.jpg"))
        << skipped.out;
}

TEST_F(DataCommand, ShowsOtherImagesTooAndMixedOnes) {
    const Result made = invar({"data", "data=synthetic", "data.size=50", "data.mixup=1", "-o", "made.png"});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_TRUE(has(made.out, "50 of 50 samples to train on looked at")) << made.out;
    EXPECT_GE(size_of("made.png").width, 4 + 6 * (4 * 28 + 4));  // six columns, each pixel four times as wide
}

TEST_F(DataCommand, ShowsTextsWithTheirCeiling) {
    for (int i = 0; i < 5; ++i) {
        const std::string number = std::to_string(i);
        write("texts/images/img_" + number + ".jpg", testing::jpeg_of(testing::picture(240, 320, i)));
        write("texts/gt/gt_img_" + number + ".txt",
              testing::as_bytes("10,10,110,10,110,40,10,40,LARGE\n10,60,16,60,16,63,10,63,tiny\n"
                                "200,100,260,100,260,140,200,140,###\n"));
    }
    const Result result = invar({"data", "data=icdar2015", "data.root=texts", "data.size=320", "-o", "sheet.png"});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part : {"texts: 8 that count, 4 that nobody could read, in 4 images", "H-mean 66.7%",
                             "too small to be labelled", "worst images", "img_", "data.min_text_size"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    EXPECT_TRUE(slurp(folder_ / "sheet.png").starts_with("\x89PNG"));
}

TEST_F(DataCommand, RefusesInOneLineWhatItCannotShow) {
    EXPECT_TRUE(has(invar({"data", "task=language", "model=gpt", "data=chains"}).error(), "has no images to show"));
    EXPECT_TRUE(has(invar({"data", "data=synthetic", "--split", "test"}).error(), "there are train and val"));
    EXPECT_TRUE(has(invar({"data", "data=image_folder", "data.root=nowhere"}).error(), "there is no folder nowhere"));
    EXPECT_TRUE(has(invar({"data", "data=synthetic", "--count", "0"}).error(), "--count 0"));
    EXPECT_TRUE(has(invar({"data", "data=synthetic", "data.size=20", "-o", "no/such/folder.png"}).error(), "no/such"));
}

}  // namespace invar::cli
