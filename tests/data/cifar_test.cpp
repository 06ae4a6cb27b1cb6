#include "invar/data/cifar.h"

#include "files.h"

namespace invar {

using namespace testing;

namespace {

// One record whose values tell planes, pixels and records apart.
Bytes record(const Bytes& labels, int salt) {
    Bytes bytes = labels;
    for (int c = 0; c < 3; ++c) {
        for (int p = 0; p < 1024; ++p) bytes.push_back(std::uint8_t(p * 7 + c * 50 + salt));
    }
    return bytes;
}

Bytes join(Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

ImageSet parse(const Bytes& bytes, Cifar kind) {
    ImageSet set = empty_cifar(kind);
    append_cifar(set, bytes, "F", kind);
    return set;
}

}  // namespace

TEST(Cifar, TurnsPlanesIntoInterleavedPixels) {
    const ImageSet set = parse(join(record({3}, 0), record({9}, 11)), Cifar::ten);
    EXPECT_EQ(set.height, 32);
    EXPECT_EQ(set.width, 32);
    EXPECT_EQ(set.channels, 3);
    EXPECT_EQ(set.classes, 10);
    EXPECT_EQ(set.labels, (Bytes{3, 9}));
    ASSERT_EQ(set.pixels.size(), 2u * 3072);
    for (int n = 0; n < 2; ++n) {
        for (int p = 0; p < 1024; ++p) {
            for (int c = 0; c < 3; ++c) {
                ASSERT_EQ(set.pixels[std::size_t(n * 3072 + p * 3 + c)], std::uint8_t(p * 7 + c * 50 + n * 11));
            }
        }
    }
}

TEST(Cifar, KeepsTheFineLabelOfCifar100) {
    const ImageSet set = parse(join(record({19, 99}, 0), record({0, 42}, 5)), Cifar::hundred);
    EXPECT_EQ(set.classes, 100);
    EXPECT_EQ(set.labels, (Bytes{99, 42}));
    EXPECT_EQ(set.pixels[1], 50);
    EXPECT_EQ(set.pixels[3072], 5);
}

TEST(Cifar, AppendsFileAfterFileAndReadsGzip) {
    ImageSet set = empty_cifar(Cifar::ten);
    append_cifar(set, record({1}, 0), "A", Cifar::ten);
    append_cifar(set, gzip_bytes(record({2}, 30)), "B", Cifar::ten);
    EXPECT_EQ(set.labels, (Bytes{1, 2}));
    EXPECT_EQ(set.pixels[3072], 30);
}

TEST(Cifar, RefusesSizesThatAreNotWholeRecords) {
    const Bytes good = record({3}, 0);
    expect_error<IoError>([&] { parse(Bytes(good.begin(), good.end() - 1), Cifar::ten); }, {"F", "3072 bytes", "3073"});
    expect_error<IoError>([&] { parse(join(good, {0}), Cifar::ten); }, {"3074 bytes", "multiple of 3073"});
    expect_error<IoError>([&] { parse({}, Cifar::ten); }, {"0 bytes"});
    expect_error<IoError>([&] { parse(good, Cifar::hundred); }, {"3073 bytes", "multiple of 3074"});
}

TEST(Cifar, RefusesLabelsOutOfRange) {
    expect_error<IoError>([] { parse(join(record({9}, 0), record({10}, 0)), Cifar::ten); },
                          {"F", "label 10", "image 1", "0 to 9"});
    expect_error<IoError>([] { parse(record({0, 100}, 0), Cifar::hundred); }, {"label 100", "0 to 99"});
    expect_error<IoError>([] { parse(record({20, 0}, 0), Cifar::hundred); }, {"coarse label 20", "0 to 19"});
}

TEST(Cifar, RefusesMoreImagesThanAnyCifarFileHas) {
    Bytes large(100001u * 3073, 0);
    expect_error<IoError>([&] { parse(large, Cifar::ten); }, {"F", "100000"});
}

}  // namespace invar
