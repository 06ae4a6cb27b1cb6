// `invar predict`, and what runs on texts say before and after, by the real program.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "invar/image/decode.h"
#include "tests/cli/program.h"
#include "tests/data/pictures.h"

namespace invar::cli {
namespace {

using Json = nlohmann::json;

class Predict : public CliTest {
  protected:
    void write(const std::string& name, const Bytes& bytes) const {
        std::filesystem::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), long(bytes.size()));
    }
    static Words text_words() {
        return {"train",
                "task=text_detection",
                "data=icdar2015",
                "data.root=texts",
                "data.size=64",
                "data.batch_size=2",
                "data.num_workers=0",
                "model=dbnet",
                "model.layers=18",
                "model.width=4",
                "model.inner=8",
                "trainer.max_steps=2",
                "trainer.threads=1",
                "trainer.device=cpu",
                "exp_name=texts"};
    }
    // A run of a small DBNet in runs/texts, which has seen too little to find anything above the usual thresholds.
    Result train_texts(const Words& more = {}) const {
        for (int i = 0; i < 5; ++i) {
            const std::string number = std::to_string(i);
            write("texts/images/img_" + number + ".jpg", testing::jpeg_of(testing::picture(96, 128, i)));
            write("texts/gt/gt_img_" + number + ".txt",
                  testing::as_bytes("10,10,110,10,110,40,10,40,LARGE\n10,60,16,60,16,63,10,63,tiny\n"));
        }
        Words words = text_words();
        words.insert(words.end(), more.begin(), more.end());
        return invar(words);
    }
    Json predictions(const std::string& folder = "predictions") const {
        return Json::parse(slurp(folder_ / folder / "predictions.json"));
    }
};

TEST_F(Predict, WritesTextsAndPicturesOfImagesAndFolders) {
    const Result trained = train_texts();
    ASSERT_EQ(trained.code, 0) << trained.err;
    write("photos/b.png", testing::png_of(testing::picture(50, 80, 1)));
    write("photos/deeper/a.jpg", testing::jpeg_of(testing::picture(60, 40, 2)));
    write("b.jpg", testing::jpeg_of(testing::picture(30, 90, 3)));
    // So low that the whole image is a text.
    const Result result = invar(
        {"predict", "runs/texts", "b.jpg", "photos", "--checkpoint", "last", "task.bin_thresh=0", "task.box_thresh=0"});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part : {"b.jpg", "photos/b.png", "photos/deeper/a.jpg", "1 text", "predictions.json: 3 images"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    const Json all = predictions();
    EXPECT_TRUE(has(all.at("weights").get<std::string>(), "runs/texts/checkpoints/"));
    const Json& images = all.at("images");
    ASSERT_EQ(images.size(), 3u);
    EXPECT_EQ(images[0].at("file"), "b.jpg");
    EXPECT_EQ(images[0].at("width"), 90);
    EXPECT_EQ(images[0].at("height"), 30);
    EXPECT_EQ(images[0].at("picture"), "b-predicted.png");
    EXPECT_EQ(images[1].at("picture"), "b-predicted-2.png") << "two images of one name";
    for (const Json& image : images) {
        ASSERT_EQ(image.at("texts").size(), 1u);
        double right = 0, bottom = 0;
        for (const Json& point : image.at("texts")[0].at("polygon"))
            right = std::max(right, point[0].get<double>()), bottom = std::max(bottom, point[1].get<double>());
        EXPECT_EQ(right, image.at("width"));
        EXPECT_EQ(bottom, image.at("height"));
        const ImageSize size = read_image(folder_ / "predictions" / image.at("picture").get<std::string>()).size();
        EXPECT_EQ(size.width, image.at("width"));
        EXPECT_EQ(size.height, image.at("height"));
    }
    // A name as long as names may be.
    const std::string longest(250, 'n');
    write(longest + ".png", testing::png_of(testing::picture(50, 80, 1)));
    ASSERT_EQ(invar({"predict", "runs/texts", longest + ".png", "-o", "named"}).code, 0);
    EXPECT_EQ(predictions("named").at("images")[0].at("picture"), longest.substr(0, 160) + "-predicted.png");
    // Pictures of predictions that are replaced go with them; what else lies there stays.
    write("predictions/mine-predicted.png", testing::as_bytes("mine"));
    ASSERT_EQ(invar({"predict", "runs/texts", "b.jpg"}).code, 0);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "predictions/b-predicted.png"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "predictions/mine-predicted.png"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "predictions/b-predicted-2.png"));
}

TEST_F(Predict, TellsOfABrokenImageAndGoesOn) {
    ASSERT_EQ(train_texts().code, 0);
    write("bad.jpg", testing::as_bytes("no image"));
    write("good.png", testing::png_of(testing::picture(50, 80, 1)));
    const Result result = invar({"predict", "runs/texts", "bad.jpg", "good.png", "--json", "-o", "out"});
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.err, "warning: bad.jpg: ") && has(result.err, "error: 1 of 2 images cannot be read"))
        << result.err;
    EXPECT_EQ(Json::parse(result.out).at("file"), "good.png") << "one line, of the other";
    EXPECT_EQ(predictions("out").at("images").size(), 1u);
    EXPECT_EQ(invar({"predict", "runs/texts", "bad.jpg", "-o", "none"}).code, 1);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
}

TEST_F(Predict, NamesTheClassesOfImages) {
    for (int i = 0; i < 4; ++i)
        for (const char* name : {"rose", "lily"})
            write(std::string("flowers/") + name + "/" + std::to_string(i) + ".jpg",
                  testing::jpeg_of(testing::picture(20, 24, i)));
    const Result trained =
        invar({"train", "data=image_folder", "data.root=flowers", "data.size=16", "data.batch_size=2", "model=mlp",
               "model.hidden=[4]", "trainer.max_steps=1", "trainer.threads=1", "exp_name=flowers"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Result result = invar({"predict", "runs/flowers", "flowers/rose/0.jpg"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "rose ") && has(result.out, "lily ") && has(result.out, "%")) << result.out;
    const Json image = predictions().at("images").at(0);
    ASSERT_EQ(image.at("classes").size(), 2u);
    const double first = image.at("classes")[0].at("probability"), second = image.at("classes")[1].at("probability");
    EXPECT_NEAR(first + second, 1, 1e-4);
    EXPECT_GE(first, second);
    EXPECT_FALSE(image.contains("picture"));
}

TEST_F(Predict, RefusesInOneLineWhatItCannotDo) {
    const auto refuses = [&](const Words& words, std::string_view part) {
        const Result result = invar(words);
        EXPECT_EQ(result.code, 2);
        EXPECT_TRUE(has(result.error(), part)) << result.err;
    };
    write("a.png", testing::png_of(testing::picture(8, 8, 1)));
    std::filesystem::create_directories(folder_ / "empty");
    refuses({"predict"}, "say which run, and which images");
    refuses({"predict", "runs/none"}, "say which run, and which images");
    refuses({"predict", "runs/none", "a.png"}, "runs/none: there is no such file or folder");
    refuses({"predict", "empty", "a.png"}, "empty: not the folder of a run");
    refuses({"predict", "a.png", "empty"}, "empty: no image in this folder");
    ASSERT_EQ(invar(small({"task=autoencoder"})).code, 0);
    refuses({"predict", "runs/run", "a.png"}, "task=autoencoder has nothing to say of an image");
    ASSERT_EQ(train_gpt({"trainer.max_steps=1"}).code, 0);
    refuses({"predict", "runs/cats", "a.png"}, "data=text has no images");
}

// Half of the texts are too small to be labelled; two steps find nothing; pictures show that.
TEST_F(Predict, RunsOnTextsTellTheirCeilingAndWhyTheyFindNothing) {
    const Result trained = train_texts();
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_TRUE(has(trained.out, "ceiling: H-mean 66.7% is what the labels themselves would get with these settings"))
        << trained.out;
    EXPECT_LT(trained.out.find("ceiling: "), trained.out.find("step 1")) << trained.out;
    EXPECT_TRUE(
        has(trained.err,
            "warning: a network that predicts the labels to the bit gets an H-mean of 66.7% here: 1 of 2 texts"))
        << trained.err;
    EXPECT_TRUE(has(trained.err, "warning: H-mean is 0 on 1 validation image: ")) << trained.err;
    EXPECT_GT(read_image(folder_ / "runs/texts/pictures/1.jpg").width, 128) << "what there is beside what was found";
    const Result judged = invar({"eval", "runs/texts", "task.bin_thresh=1"});
    EXPECT_TRUE(has(judged.err, "no pixel is above task.bin_thresh=1")) << judged.err;
    const Result quiet = train_texts({"--quiet"});
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(quiet.out, "runs/texts_2\n");
}

// Thousands of texts over each other: their ceiling takes minutes.
TEST_F(Predict, ASignalEndsTheSearchForACeiling) {
    std::string many;
    for (int i = 0; i < 9000; ++i) {
        const int x = 7 * i % 101, y = 11 * i % 103;
        many += fmt::format("{},{},{},{},{},{},{},{},word\n", x, y, x + 900, y, x + 900, y + 900, x, y + 900);
    }
    for (const std::string number : {"0", "1", "2", "3"}) {
        for (const std::string split : {"train", "val"}) {
            write("crowd/" + split + "/images/img_" + number + ".jpg", testing::jpeg_of(testing::picture(100, 100, 1)));
            write("crowd/" + split + "/gt/gt_img_" + number + ".txt",
                  testing::as_bytes(split == "val" ? many : "10,10,90,10,90,40,10,40,LARGE\n"));
        }
    }
    Words words = text_words();
    for (const char* word : {"data.root=crowd", "data.size=1024", "exp_name=crowd"}) words.emplace_back(word);
    const pid_t child = start(words);
    for (int i = 0; i < 2000 && !has(slurp(folder_ / ".out"), "batches of"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto begin = std::chrono::steady_clock::now();
    ::kill(child, SIGTERM);
    const Result result = finish(child);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(result.code, 143) << result.err;
    EXPECT_TRUE(has(result.err, "interrupted by SIGTERM at step 0; go on with: invar train --resume runs/crowd"))
        << result.err;
    EXPECT_FALSE(has(result.out, "ceiling: ")) << result.out;
}

TEST_F(Predict, NeedsNoFontsForAModelOfRenderedScenes) {
    const Result trained = invar({"train", "dbnet_small", "model.width=4", "model.inner=8", "data.size=64",
                                  "data.scenes=4", "data.val_scenes=2", "data.batch_size=2", "data.num_workers=0",
                                  "trainer.max_epochs=1", "trainer.threads=1", "exp_name=scenes"});
    if (has(trained.err, "font")) GTEST_SKIP() << trained.err;
    ASSERT_EQ(trained.code, 0) << trained.err;
    write("sign.jpg", testing::jpeg_of(testing::picture(60, 40, 2)));
    const std::string hide =
        "HOME=/nowhere unshare -rm sh -c 'for f in /usr/share/fonts /usr/local/share/fonts; do [ -d "
        "$f ] && mount -t tmpfs none $f; done; ";
    if (shell(hide + "true' && unshare -rm mount -t tmpfs none /usr/share/fonts").code != 0)
        GTEST_SKIP() << "fonts cannot be hidden here";
    const Result result = shell(hide + "invar predict runs/scenes sign.jpg'");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "sign.jpg")) << result.out;
    const Result judged = shell(hide + "invar eval runs/scenes'");
    EXPECT_EQ(judged.code, 2) << judged.err;
    EXPECT_TRUE(has(judged.err, "font")) << "scenes are rendered there: " << judged.err;
}

}  // namespace
}  // namespace invar::cli
