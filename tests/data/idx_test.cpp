#include "invar/data/idx.h"

#include "files.h"

namespace invar {

using namespace testing;

namespace {

const Bytes kImages = idx_bytes({3, 2, 4}, counting(24));
const Bytes kLabels = idx_bytes({3}, {7, 0, 9});

void parse(const Bytes& images, const Bytes& labels) {
    parse_idx_images(images, "I", labels, "L", 10);
}

}  // namespace

TEST(Idx, ReadsSizesValuesAndLabels) {
    const ImageSet set = parse_idx_images(kImages, "I", kLabels, "L", 10);
    EXPECT_EQ(set.height, 2);
    EXPECT_EQ(set.width, 4);
    EXPECT_EQ(set.channels, 1);
    EXPECT_EQ(set.classes, 10);
    EXPECT_EQ(set.pixels, counting(24));
    EXPECT_EQ(set.labels, (Bytes{7, 0, 9}));
}

TEST(Idx, ReadsGzipToTheSameBytes) {
    const ImageSet set = parse_idx_images(gzip_bytes(kImages), "I", gzip_bytes(kLabels), "L", 10);
    EXPECT_EQ(set.pixels, counting(24));
    EXPECT_EQ(set.labels, (Bytes{7, 0, 9}));
}

TEST(Idx, ReadsGzipOfManyBlocksAndSeveralMembers) {
    const Bytes values = counting(200000);
    const Bytes plain = idx_bytes({200000}, values);
    EXPECT_EQ(parse_idx(gzip_bytes(plain), "F", 1).values, values);

    Bytes members = gzip_bytes(Bytes(plain.begin(), plain.begin() + 5));
    const Bytes rest = gzip_bytes(Bytes(plain.begin() + 5, plain.end()));
    members.insert(members.end(), rest.begin(), rest.end());
    EXPECT_EQ(parse_idx(members, "F", 1).values, values);
}

TEST(Idx, RefusesAWrongMagicAndSaysWhichItFound) {
    expect_error<IoError>([] { parse(kLabels, kLabels); }, {"I", "00000801", "expected 00000803"});
    Bytes floats = kImages;
    floats[2] = 0x0d;
    expect_error<IoError>([&] { parse(floats, kLabels); }, {"00000d03", "expected 00000803"});
    expect_error<IoError>([] { parse(kImages, {'<', 'h', 't', 'm', 'l', '>'}); }, {"L", "3c68746d"});
}

TEST(Idx, RefusesEveryTruncation) {
    for (const bool packed : {false, true}) {
        const Bytes whole = packed ? gzip_bytes(kImages) : kImages;
        for (std::size_t size = 0; size < whole.size(); ++size) {
            const Bytes part(whole.begin(), whole.begin() + long(size));
            EXPECT_THROW(parse(part, kLabels), IoError) << size << " of " << whole.size() << " bytes";
        }
    }
    expect_error<IoError>([] { parse(Bytes(kImages.begin(), kImages.end() - 1), kLabels); },
                          {"holds 39 bytes", "expected 40", "3 x 2 x 4"});
}

TEST(Idx, RefusesMoreDataThanTheHeaderSays) {
    Bytes longer = kImages;
    longer.push_back(0);
    expect_error<IoError>([&] { parse(longer, kLabels); }, {"holds 41 bytes", "expected 40"});
    expect_error<IoError>([&] { parse(gzip_bytes(longer), kLabels); }, {"at least 41 bytes", "expected 40"});
    Bytes stray = gzip_bytes(kImages);
    stray.push_back(0);
    expect_error<IoError>([&] { parse(stray, kLabels); }, {"stray"});
}

TEST(Idx, RefusesSizesThatOverflowOrAreZeroWithoutAllocatingThem) {
    const Bytes few = counting(24);
    for (const bool packed : {false, true}) {
        const auto file = [&](const std::vector<std::uint32_t>& sizes) {
            return packed ? gzip_bytes(idx_bytes(sizes, few)) : idx_bytes(sizes, few);
        };
        expect_error<IoError>(
            [&] {
                parse(file({0xffffffff, 0xffffffff, 0xffffffff}), kLabels);
            },
            {"4294967295", "more than"});
        expect_error<IoError>([&] { parse(file({0x80000000, 0x80000000, 4}), kLabels); }, {"more than"});
        expect_error<IoError>([&] { parse(file({0, 2, 4}), kLabels); }, {"0 x 2 x 4", "above 0"});
        expect_error<IoError>([&] { parse(file({60000, 28, 28}), kLabels); }, {"holds 40 bytes", "expected 47040016"});
    }
}

TEST(Idx, RefusesLabelsThatDoNotFitTheImages) {
    expect_error<IoError>([] { parse(kImages, idx_bytes({2}, {1, 2})); }, {"L: 2 labels", "expected 3"});
    expect_error<IoError>([] { parse(kImages, idx_bytes({3}, {1, 10, 2})); }, {"label 10", "image 1", "0 to 9"});
}

TEST(Idx, RefusesDamagedGzip) {
    const Bytes good = gzip_bytes(kImages);
    Bytes checksum = good;
    checksum[good.size() - 6] ^= 1;
    expect_error<IoError>([&] { parse(checksum, kLabels); }, {"I: damaged gzip"});
    Bytes length = good;
    length[12] ^= 1;
    expect_error<IoError>([&] { parse(length, kLabels); }, {"I: damaged gzip"});
    Bytes method = good;
    method[2] = 9;
    expect_error<IoError>([&] { parse(method, kLabels); }, {"I: damaged gzip"});
}

TEST(Idx, AnySingleFlippedBitGivesAnErrorOrASetOfTheSameKind) {
    for (const Bytes& good : {kImages, gzip_bytes(kImages)}) {
        for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
            Bytes bad = good;
            bad[bit / 8] ^= std::uint8_t(1 << bit % 8);
            try {
                const ImageSet set = parse_idx_images(bad, "I", kLabels, "L", 10);
                EXPECT_EQ(set.pixels.size(), 24u);
            } catch (const IoError&) {
            }
        }
    }
}

}  // namespace invar
