#include "invar/data/npy.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "files.h"
#include "invar/data/zip.h"

namespace invar {

using namespace testing;

namespace {

// An .npy file of version 1.
Bytes npy_bytes(const std::string& header, const Bytes& data, std::uint8_t version = 1) {
    Bytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes.push_back(std::uint8_t(header.size() >> (8 * i)));
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

std::string header_of(const std::string& descr, const std::string& shape, bool fortran = false) {
    return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape +
           ", }\n";
}

template <class T>
Bytes raw(const std::vector<T>& values, bool swap = false) {
    Bytes bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    if (swap)
        for (std::size_t i = 0; i < bytes.size(); i += sizeof(T))
            std::reverse(bytes.begin() + long(i), bytes.begin() + long(i + sizeof(T)));
    return bytes;
}

template <class T>
Tensor array_of(const std::string& descr, const std::vector<T>& values) {
    return parse_npy(npy_bytes(header_of(descr, "(" + std::to_string(values.size()) + ",)"), raw(values)), "F");
}

Bytes from_hex(const std::string& hex) {
    Bytes bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(std::uint8_t(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

// numpy.savez_compressed(file, x=int8 [[1, -2, 3], [4, 5, -6]], y=[0.5, 1.5])
const Bytes kByNumpy = from_hex(
    "504b0304140000000800000021004c6d347d4c0000008600000005001400782e6e70790100100086000000000000004c0000"
    "00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a05e9369a8aea3a09e965f54529498179f5f94920a12774bcc"
    "294e058a17672416a402f91a463a0ac69a3a0ab50a64032ec67fcc2cacbf00504b03041400000008000000210094dddb844d"
    "0000009000000005001400792e6e70790100100090000000000000004d000000000000009bec17ea1b10c9c850c650ad9e92"
    "5a9c5ca46ea5a06e9366a1aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a9a3a0ab50a"
    "14002e063078600fa17fd80300504b01021403140000000800000021004c6d347d4c00000086000000050000000000000000"
    "000000800100000000782e6e7079504b010214031400000008000000210094dddb844d000000900000000500000000000000"
    "00000000800183000000792e6e7079504b0506000000000200020066000000070100000000");

}  // namespace

TEST(Npy, ReadsNumbersOfEveryWidth) {
    EXPECT_EQ(array_of<double>("<f8", {1.5, -2}).to_vector<double>(), (std::vector<double>{1.5, -2}));
    EXPECT_EQ(array_of<float>("<f4", {1.5f, -2}).dtype(), Dtype::f32);
    EXPECT_EQ(array_of<std::uint16_t>("<f2", {0x3c00, 0xc000}).to_vector<float>(), (std::vector<float>{1, -2}));
    const std::vector<std::int64_t> whole = {-3, 100};
    EXPECT_EQ(array_of<std::int64_t>("<i8", {-3, 100}).to_vector<std::int64_t>(), whole);
    EXPECT_EQ(array_of<std::int32_t>("<i4", {-3, 100}).to_vector<std::int64_t>(), whole);
    EXPECT_EQ(array_of<std::int16_t>("<i2", {-3, 100}).to_vector<std::int64_t>(), whole);
    EXPECT_EQ(array_of<std::int8_t>("|i1", {-3, 100}).to_vector<std::int64_t>(), whole);
    const std::vector<std::int64_t> large = {4000000000, 7};
    EXPECT_EQ(array_of<std::uint64_t>("<u8", {4000000000, 7}).to_vector<std::int64_t>(), large);
    EXPECT_EQ(array_of<std::uint32_t>("<u4", {4000000000, 7}).to_vector<std::int64_t>(), large);
    EXPECT_EQ(array_of<std::uint16_t>("<u2", {65535}).to_vector<std::int64_t>(), (std::vector<std::int64_t>{65535}));
    EXPECT_EQ(array_of<std::uint8_t>("|u1", {255}).dtype(), Dtype::u8);
    EXPECT_EQ(array_of<std::uint8_t>("|b1", {1, 0}).dtype(), Dtype::boolean);
}

TEST(Npy, ReadsEitherByteOrderAndMemoryOrder) {
    const Tensor big = parse_npy(npy_bytes(header_of(">i4", "(2,)"), raw<std::int32_t>({1, -70000}, true)), "F");
    EXPECT_EQ(big.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, -70000}));
    const Bytes columns = raw<float>({1, 4, 2, 5, 3, 6});
    const Tensor fortran = parse_npy(npy_bytes(header_of("<f4", "(2, 3)", true), columns), "F");
    EXPECT_EQ(fortran.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Npy, ReadsLaterVersionsScalarsAndEmptyArrays) {
    EXPECT_EQ(parse_npy(npy_bytes(header_of("<f4", "()"), raw<float>({7}), 2), "F").item(), 7);
    EXPECT_EQ(parse_npy(npy_bytes(header_of("<f4", "(0, 3)"), {}), "F").shape(), (Shape{0, 3}));
}

TEST(Npy, RefusesWhatIsCutOffOrTooLong) {
    const Bytes whole = npy_bytes(header_of("<f4", "(2, 3)"), raw<float>({1, 2, 3, 4, 5, 6}));
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_THROW(parse_npy(std::span(whole).first(size), "F"), IoError) << size;
    Bytes longer = whole;
    longer.push_back(0);
    expect_error<IoError>([&] { parse_npy(longer, "F"); }, {"F", "expected", "fetch the file again"});
}

TEST(Npy, BelievesNoHeaderThatClaimsMoreThanTheFileHolds) {
    for (const char* shape : {"(4000000000,)", "(99999999, 99999999, 99999999)", "(9223372036854775807,)"})
        expect_error<IoError>([&] { parse_npy(npy_bytes(header_of("<f4", shape), {}), "F"); }, {"more than the"});
    Bytes giant = npy_bytes("", {}, 2);
    giant[11] = 0x7f;
    expect_error<IoError>([&] { parse_npy(giant, "F"); }, {"a NumPy header of 2130706432 bytes"});
    expect_error<IoError>([&] { parse_npy(npy_bytes(header_of("<f4", "(1,1,1,1,1,1,1)"), raw<float>({1})), "F"); },
                          {"more than 6 dimensions"});
}

TEST(Npy, RefusesWhatIsNoArrayOfNumbers) {
    for (const char* descr : {"<U8", "|O", "<c16", "<f16", "<i3", "", "x", "<f"})
        expect_error<IoError>([&] { parse_npy(npy_bytes(header_of(descr, "(1,)"), Bytes(16)), "F"); }, {"F", "type"});
    for (const char* shape : {"(-1,)", "(x,)", "5", "(1"})
        EXPECT_THROW(parse_npy(npy_bytes(header_of("<f4", shape), raw<float>({1})), "F"), IoError) << shape;
    EXPECT_THROW(parse_npy(npy_bytes("{}", {}), "F"), IoError);
    const Bytes record =
        npy_bytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", raw<float>({1}));
    expect_error<IoError>([&] { parse_npy(record, "F"); }, {"not numbers"});
    expect_error<IoError>([] { array_of<std::uint64_t>("<u8", {0xffffffffffffffff}); },
                          {"row 0 is 18446744073709551615, beyond what i64 holds"});
}

void read_all(std::span<const std::uint8_t> archive) {
    const NpzFile arrays(archive, "F");
    for (const std::string& name : arrays.names()) arrays.array(name);
}

TEST(Npz, ReadsTheArraysThatNumpySaved) {
    const NpzFile arrays(kByNumpy, "F");
    EXPECT_EQ(arrays.names(), (std::vector<std::string>{"x", "y"}));
    EXPECT_EQ(arrays.array("x").shape(), (Shape{2, 3}));
    EXPECT_EQ(arrays.array("x").to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, -2, 3, 4, 5, -6}));
    EXPECT_EQ(arrays.array("y").to_vector<double>(), (std::vector<double>{0.5, 1.5}));
}

TEST(Npy, NamesWhatItDoesNotRead) {
    const auto refused = [](const char* descr, const char* what) {
        expect_error<IoError>([&] { parse_npy(npy_bytes(header_of(descr, "(1,)"), Bytes(16)), "F"); }, {"F", what});
    };
    refused("<U8", "text");
    refused("|S3", "text");
    refused("|O", "pickle");
    refused("<c16", "complex");
    refused("<M8[ns]", "dates");
    refused("<f16", "unusual width");
}

TEST(Npz, RefusesADamagedArchiveAtEveryPlace) {
    for (std::size_t size = 0; size < kByNumpy.size(); ++size)
        EXPECT_THROW(read_all(std::span(kByNumpy).first(size)), IoError) << size;
    int refused = 0;
    for (std::size_t at = 0; at < kByNumpy.size(); ++at) {
        Bytes damaged = kByNumpy;
        damaged[at] ^= 0x55;
        try {
            read_all(damaged);
        } catch (const IoError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 200) << "times, dates and attributes alone do not matter";
}

// A stream that unpacks to megabytes of zeros behind a header that speaks of four numbers.
TEST(Npz, UnpacksNoMoreThanTheHeaderSpeaksOf) {
    Bytes plain = npy_bytes(header_of("<f4", "(4,)"), {});
    plain.resize(8 << 20);
    std::vector<std::uint8_t> packed(compressBound(plain.size()));
    z_stream stream{};
    ASSERT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = plain.data(), stream.avail_in = uInt(plain.size());
    stream.next_out = packed.data(), stream.avail_out = uInt(packed.size());
    ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    const ZipEntry entry{"x.npy", true, 0, plain.size(), packed};
    EXPECT_EQ(unzip(entry, "F", 100).size(), 100u);
    EXPECT_THROW(unzip(entry, "F", plain.size() + 1), IoError) << "its checksum is wrong";
    const ZipEntry lying{"x.npy", true, 0, 100, packed};
    expect_error<IoError>([&] { unzip(lying, "F", std::size_t(1) << 40); }, {"does not have the 100 bytes"});
}

}  // namespace invar
