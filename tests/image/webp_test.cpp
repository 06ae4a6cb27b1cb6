#include <gtest/gtest.h>

#include "invar/image/decode.h"
#include "invar/image/orientation.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

#ifdef INVAR_HAS_WEBP
#include <webp/encode.h>

namespace invar {

using namespace testing;

namespace {

std::string little(std::uint64_t value, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += char(value >> 8 * i);
    return text;
}

std::string chunk(const std::string& name, const std::string& data) {
    return name + little(data.size(), 4) + data + std::string(data.size() % 2, '\0');
}

std::string riff(const std::string& chunks) {
    return "RIFF" + little(chunks.size() + 4, 4) + "WEBP" + chunks;
}

std::string encoded(const Image& image, float quality = -1) {  // lossless where negative
    std::uint8_t* bytes = nullptr;
    const int height = int(image.height), width = int(image.width), stride = int(image.stride());
    const std::size_t size = quality < 0 ? WebPEncodeLosslessRGB(image.pixels.data(), width, height, stride, &bytes)
                                         : WebPEncodeRGB(image.pixels.data(), width, height, stride, quality, &bytes);
    std::string file(reinterpret_cast<const char*>(bytes), size);
    WebPFree(bytes);
    return file;
}

constexpr int kExif = 8, kAnimated = 2;

std::string extended(int flags, const Image& image) {
    return chunk("VP8X", little(std::uint64_t(flags), 4) + little(std::uint64_t(image.width - 1), 3) +
                             little(std::uint64_t(image.height - 1), 3));
}

// One frame after the other, a tenth of a second each.
std::string animated(const std::vector<Image>& frames) {
    std::string chunks = extended(kAnimated, frames[0]) + chunk("ANIM", little(0, 6));
    for (const Image& frame : frames)
        chunks += chunk("ANMF", little(0, 6) + little(std::uint64_t(frame.width - 1), 3) +
                                    little(std::uint64_t(frame.height - 1), 3) + little(100, 3) + little(0, 1) +
                                    encoded(frame).substr(12));
    return riff(chunks);
}

}  // namespace

TEST(DecodeWebp, ReadsLosslessAndLossy) {
    const Image picture = test_picture(33, 42);
    EXPECT_EQ(decode(encoded(picture)), picture);
    EXPECT_EQ(decode(encoded(picture, 90)).size(), picture.size());
    EXPECT_LE(distance(decode(encoded(Image(33, 42, 3, 100), 90)), Image(33, 42, 3, 100)), 3);
}

TEST(DecodeWebp, TakesTheFirstFrameOfAnAnimation) {
    const Image first = test_picture(20, 30), second(20, 30, 3, 9);
    EXPECT_EQ(decode(animated({first, second})), first);
}

TEST(DecodeWebp, TurnsImagesUpright) {
    const Image picture = test_picture(20, 30);
    for (const std::string& prefix : {std::string(), std::string("Exif\0\0", 6)}) {
        const std::string file =
            riff(extended(kExif, picture) + encoded(picture).substr(12) + chunk("EXIF", prefix + exif_block(6)));
        EXPECT_EQ(decode(file), Orientation::of_exif(6).upright(picture));
    }
}

TEST(DecodeWebp, RefusesWhatIsCutShortOrTooLarge) {
    const Image picture = test_picture(64, 80);
    for (const std::string& file : {encoded(picture), encoded(picture, 90), animated({picture, picture})})
        for (std::size_t part = 1; part < 16; ++part)
            message_of<IoError>([&] { decode(file.substr(0, file.size() * part / 16)); });
    EXPECT_TRUE(has(message_of<IoError>([&] { decode(encoded(picture), {.most_pixels = 5119}); }), "64 x 80"));
    const std::string canvas = riff(chunk("VP8X", little(kAnimated, 4) + little(0xffffff, 3) + little(0xfe, 3)));
    message_of<IoError>([&] { decode(canvas); });
}

}  // namespace invar

#else

TEST(DecodeWebp, SaysThatThisBuildHasNone) {
    const std::string line =
        invar::message_of<invar::IoError>([] { invar::decode_image(invar::testing::bytes_of("RIFF1234WEBP"), "F"); });
    EXPECT_TRUE(invar::has(line, "this build does not read")) << line;
}

#endif
