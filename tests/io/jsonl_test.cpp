#include "invar/io/jsonl.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "scratch.h"

namespace invar {

TEST(FormatNumber, GivesTheFewestDigitsThatReadBackTheSame) {
    EXPECT_EQ(format_number(0.1), "0.1");
    EXPECT_EQ(format_number(0.1f), "0.1");
    EXPECT_EQ(format_number(double(0.1f)), "0.10000000149011612");
    EXPECT_EQ(format_number(65536.0), "65536.0");
    EXPECT_EQ(format_number(-0.0), "-0.0");
    EXPECT_EQ(format_number(DBL_MAX), "1.7976931348623157e+308");
    std::mt19937_64 random(1);
    for (int i = 0; i < 10'000; ++i) {
        const auto value = std::bit_cast<double>(random());
        const auto narrow = std::bit_cast<float>(std::uint32_t(random()));
        if (std::isfinite(value)) {
            EXPECT_EQ(nlohmann::json::parse(format_number(value)).get<double>(), value);
        }
        if (std::isfinite(narrow)) {
            EXPECT_EQ(float(nlohmann::json::parse(format_number(narrow)).get<double>()), narrow);
        }
    }
}

TEST(FormatNumber, WritesNonFiniteNumbersAsTexts) {
    EXPECT_EQ(format_number(std::nan("")), "\"nan\"");
    EXPECT_EQ(format_number(-std::nan("")), "\"nan\"");
    EXPECT_EQ(format_number(INFINITY), "\"inf\"");
    EXPECT_EQ(format_number(-double(INFINITY)), "\"-inf\"");
}

TEST(JsonLine, KeepsTheOrderOfItsKeys) {
    const std::string text = JsonLine()
                                 .add("step", 3)
                                 .add("loss", 0.25)
                                 .add("skipped", false)
                                 .add("name", "a \"b\"\n")
                                 .add("memory", JsonLine().add("weights", std::uint64_t(1) << 63))
                                 .text();
    EXPECT_EQ(text,
              R"({"step":3,"loss":0.25,"skipped":false,"name":"a \"b\"\n","memory":{"weights":9223372036854775808}})");
    EXPECT_TRUE(nlohmann::json::accept(JsonLine().add("\xff", "\xfe").text()))
        << "bad UTF-8 must still give valid JSON";
    EXPECT_EQ(JsonLine().text(), "{}");
}

TEST(Jsonl, ReadsBackWhatWasWritten) {
    const Scratch scratch;
    {
        JsonlFile file(scratch / "metrics.jsonl");
        file.write(JsonLine().add("step", 1).add("loss", 1.0 / 3.0));
        file.write(JsonLine().add("step", 2).add("loss", std::nan("")).add("norm", -INFINITY));
    }
    const auto lines = read_jsonl(scratch / "metrics.jsonl");
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(number_of(lines[0]["loss"]), 1.0 / 3.0);
    EXPECT_TRUE(std::isnan(number_of(lines[1]["loss"])));
    EXPECT_EQ(number_of(lines[1]["norm"]), -INFINITY);
    EXPECT_THROW(number_of(nlohmann::json("text")), IoError);
    EXPECT_THROW(number_of(nlohmann::json()), IoError);
}

TEST(Jsonl, ToleratesATornLastLineAtEveryLength) {
    const Scratch scratch;
    const std::string first = "{\"step\":1}\n", second = "{\"step\":2,\"loss\":0.5}";
    for (std::size_t size = 0; size <= second.size(); ++size) {
        put(scratch / "a", first + second.substr(0, size));
        const std::size_t whole = size == second.size() ? 2 : 1;
        EXPECT_EQ(read_jsonl(scratch / "a").size(), whole) << size;
        JsonlFile(scratch / "a").write(JsonLine().add("step", 3));
        const auto lines = read_jsonl(scratch / "a");
        ASSERT_EQ(lines.size(), whole + 1) << size;
        EXPECT_EQ(lines.back()["step"], 3);
    }
}

TEST(Jsonl, NamesTheLineThatIsDamaged) {
    const Scratch scratch;
    for (const std::string_view bad : {"{\"step\":", "[1]", "", "3", "{}x", "{\"\xff\":1}"}) {
        put(scratch / "a", fmt::format("{{}}\n{}\n{{}}\n", bad));
        const std::string message = message_of<IoError>([&] { read_jsonl(scratch / "a"); });
        EXPECT_TRUE(has(message, "line 2")) << message;
    }
    put(scratch / "a", std::string_view("{}\0x\n{}\n", 8));
    EXPECT_THROW(read_jsonl(scratch / "a"), IoError);
}

TEST(Jsonl, GoesBackToARememberedPlace) {
    const Scratch scratch;
    JsonlFile file(scratch / "a");
    file.write(JsonLine().add("step", 1));
    const std::uint64_t place = file.size();
    file.write(JsonLine().add("step", 2));
    file.truncate(place);
    file.write(JsonLine().add("step", 9));
    EXPECT_EQ(read_jsonl(scratch / "a").back()["step"], 9);
    EXPECT_EQ(read_jsonl(scratch / "a").size(), 2u);
}

}  // namespace invar
