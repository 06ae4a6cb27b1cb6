#include "invar/io/safetensors.h"

#include <cstring>

#include "invar/io/file.h"
#include "scratch.h"

namespace invar {

namespace {

std::string bytes_of(const Tensor& tensor) {
    return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

// A file with this JSON, padded or not as given, and this many data bytes.
std::string file_with(std::string_view json, std::size_t data_bytes) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += char(json.size() >> (8 * i));
    return bytes.append(json).append(data_bytes, '\x01');
}

std::string error_of(std::string_view bytes) {
    return message_of<IoError>([&] { parse_safetensors(bytes, "some.safetensors"); });
}

}  // namespace

TEST(Safetensors, RoundTripsEveryDtypeToTheBit) {
    const Scratch scratch;
    TensorMap tensors;
    for (const Dtype dtype : kAllDtypes) {
        Tensor tensor = Tensor::empty({3, 5}, dtype);
        auto* bytes = static_cast<unsigned char*>(tensor.raw());
        for (std::size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(i * 151 + 200);
        tensors.emplace(std::string(name_of(dtype)), tensor);
    }
    save_safetensors(scratch / "a", tensors, {{"format", "pt"}, {"note", "\"quotes\"\n\t\\ and \xC3\xA9"}});
    const SafetensorsContent back = load_safetensors(scratch / "a");
    ASSERT_EQ(back.tensors.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
        const Tensor& found = back.tensors.at(name);
        EXPECT_EQ(found.dtype(), tensor.dtype()) << name;
        EXPECT_EQ(found.shape(), tensor.shape()) << name;
        EXPECT_EQ(bytes_of(found), bytes_of(tensor)) << name;
    }
    EXPECT_EQ(back.metadata.at("note"), "\"quotes\"\n\t\\ and \xC3\xA9");
}

TEST(Safetensors, RoundTripsScalarsEmptyTensorsAndEmptyFiles) {
    const Scratch scratch;
    const TensorMap tensors = {{"scalar", Tensor::scalar(2.5)},
                               {"empty", Tensor::empty({0})},
                               {"hollow", Tensor::empty({4, 0, 7}, Dtype::f16)},
                               {"deep", Tensor::from<float>({1, 2}, {1, 1, 2, 1, 1, 1})}};
    save_safetensors(scratch / "a", tensors);
    const TensorMap back = load_safetensors(scratch / "a").tensors;
    EXPECT_EQ(back.at("scalar").rank(), 0);
    EXPECT_EQ(back.at("scalar").item(), 2.5);
    EXPECT_EQ(back.at("empty").shape(), (Shape{0}));
    EXPECT_EQ(back.at("hollow").shape(), (Shape{4, 0, 7}));
    EXPECT_EQ(back.at("deep").to_vector<float>(), (std::vector<float>{1, 2}));
    save_safetensors(scratch / "none", {});
    EXPECT_TRUE(load_safetensors(scratch / "none").tensors.empty());
}

TEST(Safetensors, WritesStridedTensorsInRowOrder) {
    const Scratch scratch;
    const Tensor rows = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
    save_safetensors(scratch / "a", {{"t", rows.as_strided(0, {3, 2}, {1, 3})}, {"w", rows.as_strided(2, {2}, {3})}});
    const TensorMap back = load_safetensors(scratch / "a").tensors;
    EXPECT_EQ(back.at("t").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(back.at("w").to_vector<float>(), (std::vector<float>{2, 5}));
}

// What Python's safetensors.numpy.save writes for the same tensors, but for our metadata: compact JSON, dtype before
// shape before offsets, wide types first and then by name, padded with spaces to 8 bytes.
TEST(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
    const Scratch scratch;
    const std::string json = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    ASSERT_EQ(json.size(), 54u);
    EXPECT_EQ(format_header({{{"a", Dtype::f32, {2}, 0, 8, {}}}, {}, {}}),
              std::string("\x38\0\0\0\0\0\0\0", 8) + json + "  ");
    save_safetensors(scratch / "one", {{"a", Tensor::from<float>({1, -2}, {2})}});
    EXPECT_TRUE(read_file(scratch / "one").ends_with(std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8)));

    TensorMap tensors;
    for (const Dtype dtype : kAllDtypes) tensors.emplace("t." + std::string(name_of(dtype)), Tensor::empty({}, dtype));
    tensors.emplace("a", Tensor::empty({1}, Dtype::f32));
    std::string order;
    for (const Metadata& metadata : {Metadata{}, Metadata{{"format", "pt"}}}) {
        save_safetensors(scratch / "all", tensors, metadata);
        const SafetensorsFile file(scratch / "all");
        order.clear();
        for (const TensorEntry& entry : file.entries()) order += entry.name + " ";
        EXPECT_EQ(order, "t.i64 t.f64 a t.f32 t.i32 t.bf16 t.f16 t.f8e4m3 t.f8e5m2 t.u8 t.bool ");
        EXPECT_EQ(file.head().size() % 8, 0u);
        const std::string start = metadata.empty() ? R"({"__metadata__":{"invar.checksum":"crc32c",)"
                                                   : R"({"__metadata__":{"format":"pt","invar.checksum":"crc32c",)";
        EXPECT_EQ(file.head().substr(8, start.size()), start);
    }
}

TEST(Safetensors, ReadsFilesOtherProgramsWrite) {
    // Keys in any order, white space, data in another order than the names, no padding, escapes, empty metadata.
    const std::string_view json =
        "{ \"b\": {\"shape\": [1], \"data_offsets\": [4, 8], \"dtype\": \"F32\"},\n \"a\\u00e9\": "
        "{\"dtype\":\"U8\",\"shape\":"
        "[2,2],\"data_offsets\":[0,4]}, \"__metadata__\": {} }";
    const SafetensorsContent content = parse_safetensors(file_with(json, 8), "other");
    EXPECT_EQ(content.tensors.at("a\xC3\xA9").to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 1, 1}));
    EXPECT_EQ(content.tensors.at("b").dtype(), Dtype::f32);
}

TEST(SafetensorsFile, ListsWithoutReadingAndCopiesOneOut) {
    const Scratch scratch;
    save_safetensors(scratch / "a", {{"x", Tensor::from<float>({1, 2, 3}, {3})}, {"y", Tensor::scalar(7, Dtype::i64)}});
    const SafetensorsFile file(scratch / "a");
    ASSERT_EQ(file.entries().size(), 2u);
    EXPECT_EQ(file.entries()[0].name, "y");
    EXPECT_EQ(file.entries()[1].begin, 8u);
    EXPECT_EQ(file.entries()[1].end, 20u);
    EXPECT_TRUE(file.contains("x"));
    EXPECT_EQ(file.tensor("x").to_vector<float>(), (std::vector<float>{1, 2, 3}));
    const std::string message = message_of<IoError>([&] { file.tensor("z"); });
    EXPECT_TRUE(has(message, "\"z\"")) << message;
    // The file shrinks under us: an error, not a signal.
    std::filesystem::resize_file(scratch / "a", std::filesystem::file_size(scratch / "a") - 4);
    EXPECT_TRUE(has(message_of<IoError>([&] { file.tensor("x"); }), "truncated"));
}

TEST(Safetensors, RefusesWhatCannotBeSaved) {
    const Scratch scratch;
    EXPECT_THROW(save_safetensors(scratch / "a", {{"t", Tensor()}}), UsageError);
    EXPECT_THROW(save_safetensors(scratch / "a", {{"__metadata__", Tensor::scalar(1)}}), UsageError);
    EXPECT_THROW(save_safetensors(scratch / "a", {{"\xff", Tensor::scalar(1)}}), UsageError);
    EXPECT_THROW(save_safetensors(scratch / "a", {}, {{"k", "\xc3"}}), UsageError);
    EXPECT_TRUE(scratch.names().empty());
}

struct Hostile {
    const char* name;
    std::string bytes;
    std::string_view says;
};

TEST(Safetensors, RefusesHostileHeadersAndSaysWhy) {
    const auto one = [](std::string_view entry, std::size_t data = 8) {
        return file_with("{\"t\":" + std::string(entry) + "}", data);
    };
    const auto with = [&](std::string_view shape, std::string_view offsets, std::size_t data = 8) {
        return one(fmt::format(R"({{"dtype":"F32","shape":{},"data_offsets":{}}})", shape, offsets), data);
    };
    const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],)";
    const std::string good = with("[2]", "[0,8]");
    ASSERT_NO_THROW(parse_safetensors(good, "good"));
    std::string thousand = "[1";
    for (int i = 1; i < 1000; ++i) thousand += ",1";
    thousand += "]";
    std::string huge_length = good, over_length = good, hundred_megabytes = good;
    huge_length.replace(0, 8, 8, '\xff');
    over_length[0] = char(good.size() - 7);
    hundred_megabytes.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
    const Hostile cases[] = {
        {"nothing", "", "truncated"},
        {"seven bytes", "1234567", "truncated"},
        {"length of 2^64 - 1", huge_length, "expected at most"},
        {"length over 100 MB", hundred_megabytes, "100000001 bytes long"},
        {"length past the end", over_length, "truncated"},
        {"no header", file_with("", 0), "does not begin with"},
        {"blank first", file_with(" {}", 0), "does not begin with"},
        {"a list", file_with("[]", 0), "does not begin with"},
        {"cut JSON", file_with(R"({"t":{"dtype")", 0), "not valid JSON"},
        {"text after", file_with("{}{}", 0), "not valid JSON"},
        {"zero byte, then text", file_with(std::string_view("{}\0x", 4), 0), "zero byte"},
        {"trailing comma", file_with("{\"a\":{},}", 0), "not valid JSON"},
        {"bad UTF-8", file_with("{\"\xff\":{}}", 0), "not valid JSON"},
        {"number too large", with("[1e999]", "[0,8]"), "not valid JSON"},
        {"duplicate tensor", file_with(two + R"("data_offsets":[4,8]},"a":{}})", 8), "appears twice"},
        {"duplicate metadata", file_with(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice"},
        {"duplicate metadata key", file_with(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "\"k\" appears twice"},
        {"duplicate shape", one(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"), "twice"},
        {"metadata of numbers", file_with(R"({"__metadata__":{"k":1}})", 0), "expected a text"},
        {"metadata of objects", file_with(R"({"__metadata__":{"k":{}}})", 0), "expected a text"},
        {"metadata null", file_with(R"({"__metadata__":null})", 0), "expected an object"},
        {"tensor a number", one("3"), "expected an object"},
        {"tensor empty", one("{}"), "lacks one of"},
        {"no offsets", one(R"({"dtype":"F32","shape":[2]})"), "lacks one of"},
        {"unknown key", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"stride":[1]})"), "\"stride\""},
        {"unknown dtype", one(R"({"dtype":"I16","shape":[4],"data_offsets":[0,8]})"), "\"I16\""},
        {"lower-case dtype", one(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"), "\"f32\""},
        {"dtype a list", one(R"({"dtype":["F32"],"shape":[2],"data_offsets":[0,8]})"), "expected a text"},
        {"shape a text", with("\"2\"", "[0,8]"), "expected a list"},
        {"shape nested", with("[[2]]", "[0,8]"), "expected"},
        {"negative size", with("[-2]", "[0,8]"), "negative"},
        {"fractional size", with("[2.0]", "[0,8]"), "whole"},
        {"size true", with("[true]", "[0,8]"), "whole"},
        {"product overflows to 2", with("[9223372036854775809,2]", "[0,8]"), "2^63"},
        {"product overflows to 0", with("[4294967296,4294967296]", "[0,0]", 0), "2^63"},
        {"overflow behind a zero", with("[0,4294967296,4294967296]", "[0,0]", 0), "2^63"},
        {"size over 2^63", with("[18446744073709551615]", "[0,8]"), "2^63"},
        {"bytes overflow", with("[4611686018427387906]", "[0,8]"), "expected 4611686018427387906 elements of 4"},
        {"seven dimensions", with("[1,1,1,1,1,1,2]", "[0,8]"), "7 dimensions, expected at most 6"},
        {"a thousand dimensions", with(thousand, "[0,8]"), "more than 64 numbers"},
        {"one offset", with("[2]", "[0]"), "1 data_offsets, expected 2"},
        {"three offsets", with("[2]", "[0,8,8]"), "3 data_offsets, expected 2"},
        {"offsets reversed", with("[2]", "[8,0]"), "[8, 0]"},
        {"offsets past the end", with("[4]", "[0,16]"), "within the file's 8"},
        {"offsets past 2^64", with("[2]", "[0,18446744073709551616]"), "whole"},
        {"too small for the shape", with("[3]", "[0,8]"), "8 bytes, expected 3 elements"},
        {"too large for the shape", with("[1]", "[0,8]"), "8 bytes, expected 1 elements"},
        {"half an element", with("[1]", "[0,6]", 6), "6 bytes"},
        {"bytes before", with("[1]", "[4,8]"), "leave a hole"},
        {"bytes after", with("[1]", "[0,4]"), "end at data byte 4, but the file at 8"},
        {"overlap", file_with(two + R"("data_offsets":[2,6]}})", 6), "overlap"},
        {"hole", file_with(two + R"("data_offsets":[5,9]}})", 9), "leave a hole"},
        {"same bytes twice", file_with(two + R"("data_offsets":[0,4]}})", 4), "overlap"},
        {"deep nesting", file_with("{\"t\":" + std::string(100'000, '['), 0), "expected an object"},
        {"deep objects", file_with("{\"t\":{\"shape\":{\"shape\":", 0), "expected a list"},
        {"newline in a name", file_with("{\"a\\nb\":3}", 0), "a\\nb"},
    };
    for (const Hostile& hostile : cases) {
        const std::string message = error_of(hostile.bytes);
        EXPECT_TRUE(has(message, hostile.says)) << hostile.name << ": " << message;
        EXPECT_TRUE(has(message, "some.safetensors")) << hostile.name << ": " << message;
        EXPECT_LT(message.size(), 600u) << hostile.name;
    }
}

TEST(SafetensorsFile, ListsTensorsOfOtherDtypesWhereAskedToAndRefusesThemElsewhere) {
    std::string json = "{", expected;
    std::size_t at = 0;
    const auto add = [&](std::string_view dtype, std::size_t bytes) {
        json += fmt::format(R"({}"t.{}":{{"dtype":"{}","shape":[2,4],"data_offsets":[{},{}]}})", at > 0 ? "," : "",
                            dtype, dtype, at, at + bytes);
        at += bytes;
    };
    for (const char* dtype : {"I8", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) add(dtype, 8);
    for (const char* dtype : {"I16", "U16"}) add(dtype, 16);
    add("F32", 32), add("U32", 32), add("U64", 64), add("C64", 64);
    add("F4", 4), add("F6_E2M3", 6), add("F6_E3M2", 6), add("Q5_K", 11);
    const std::string bytes = file_with(json + "}", at);
    const SafetensorsFile file(bytes, "some.safetensors", ForeignDtypes::list);
    ASSERT_EQ(file.entries().size(), 1u);
    EXPECT_EQ(file.tensor("t.F32").numel(), 8);
    ASSERT_EQ(file.foreign().size(), 13u);
    int integers = 0, unknown = 0;
    for (const ForeignEntry& entry : file.foreign()) {
        EXPECT_EQ(entry.name, "t." + entry.dtype);
        integers += entry.kind == ForeignEntry::Kind::integer;
        unknown += entry.kind == ForeignEntry::Kind::unknown;
    }
    EXPECT_EQ(integers, 5);
    EXPECT_EQ(unknown, 1);
    EXPECT_FALSE(file.contains("t.I8"));
    EXPECT_TRUE(has(error_of(bytes), "tensor \"t.I8\" has the dtype \"I8\""));
}

TEST(SafetensorsFile, BelievesTensorsOfOtherDtypesNoMoreThanItsOwn) {
    const auto error_of_two = [](std::string_view dtype, std::string_view shape, std::string_view offsets,
                                 std::string_view own, std::size_t data) {
        const std::string bytes = file_with(
            fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}},"w":{{"dtype":"U8","shape":[4],)"
                        R"("data_offsets":{}}}}})",
                        dtype, shape, offsets, own),
            data);
        return message_of<IoError>([&] { SafetensorsFile(bytes, "some.safetensors", ForeignDtypes::list); });
    };
    const struct {
        std::string_view dtype, shape, offsets, own;
        std::size_t data;
        std::string_view says;
    } cases[] = {
        {"I16", "[3]", "[0,4]", "[4,8]", 8, "4 bytes, expected 3 elements of 2 each"},
        {"U64", "[2305843009213693953]", "[0,8]", "[8,12]", 12, "8 bytes, expected 2305843009213693953 elements"},
        {"F4", "[3]", "[0,2]", "[2,6]", 6, "expected 3 elements of 4 bits each"},
        {"F4", "[4611686018427387905]", "[0,0]", "[0,4]", 4, "expected 4611686018427387905 elements"},
        {"F6_E2M3", "[4]", "[0,4]", "[4,8]", 8, "expected 4 elements of 6 bits each"},
        {"I8", "[4]", "[0,4]", "[2,6]", 6, "overlap"},
        {"I8", "[4]", "[0,4]", "[5,9]", 9, "leave a hole"},
        {"I8", "[4]", "[4,8]", "[0,4]", 9, "end at data byte 8, but the file at 9"},
        {"I8", "[5]", "[4,9]", "[0,4]", 8, "within the file's 8"},
        {"I8", "[4]", "[8,4]", "[0,4]", 8, "within the file's 8"},
        {"I8", "[4294967296,4294967296]", "[0,4]", "[4,8]", 8, "2^63"},
        {"Q5_K", "[4]", "[0,4]", "[3,7]", 7, "overlap"},
        {"Q5_K", "[4]", "[4,18446744073709551615]", "[0,4]", 8, "within the file's 8"},
        {"Q5_K", "[4]", "[0]", "[0,4]", 4, "1 data_offsets, expected 2"},
        {"Q5_K", "[4294967296,4294967296]", "[0,4]", "[4,8]", 8, "2^63"},
    };
    for (const auto& c : cases) {
        const std::string message = error_of_two(c.dtype, c.shape, c.offsets, c.own, c.data);
        EXPECT_TRUE(has(message, c.says)) << c.dtype << " " << c.shape << " " << c.offsets << ": " << message;
    }
}

TEST(Safetensors, RefusesEveryTruncation) {
    const Scratch scratch;
    save_safetensors(scratch / "a", {{"x", Tensor::from<float>({1, 2, 3}, {3})}}, {{"k", "v"}});
    const std::string whole = read_file(scratch / "a");
    for (std::size_t size = 0; size < whole.size(); ++size) {
        error_of(std::string_view(whole).substr(0, size));
        put(scratch / "cut", std::string_view(whole).substr(0, size));
        EXPECT_THROW(load_safetensors(scratch / "cut"), IoError) << size;
    }
    error_of(whole + "x");
}

TEST(Safetensors, DetectsEverySingleFlippedBitAndNamesTheTensor) {
    const Scratch scratch;
    save_safetensors(scratch / "a",
                     {{"fc.weight", Tensor::from<float>({1, 2, 3}, {3})}, {"fc.bias", Tensor::scalar(7)}},
                     {{"format", "pt"}});
    std::string bytes = read_file(scratch / "a");
    ASSERT_EQ(parse_safetensors(bytes, "whole").metadata, (Metadata{{"format", "pt"}}));
    const std::size_t data = bytes.size() - 16;  // 4 of the bias, then 12 of the weight
    for (std::size_t i = 0; i < bytes.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            bytes[i] = char(bytes[i] ^ (1 << bit));
            const std::string message = error_of(bytes);
            EXPECT_TRUE(has(message, "some.safetensors")) << message;
            const std::string_view named = i < data ? "" : i < data + 4 ? "\"fc.bias\"" : "\"fc.weight\"";
            EXPECT_TRUE(has(message, named)) << message;
            EXPECT_THROW(SafetensorsFile(bytes, "flipped").verify(), IoError) << "byte " << i << " bit " << bit;
            bytes[i] = char(bytes[i] ^ (1 << bit));
        }
}

TEST(Safetensors, SaysWhichFileIsMissingOrAFolder) {
    const Scratch scratch;
    EXPECT_TRUE(has(message_of<IoError>([&] { load_safetensors(scratch / "weights"); }), "weights: No such file"));
    EXPECT_THROW(load_safetensors(scratch.path()), IoError);
}

}  // namespace invar
