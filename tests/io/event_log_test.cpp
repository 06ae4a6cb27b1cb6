// Event files of any writer, read: both forms of a scalar, restarts, and files that are torn, damaged or hostile.
#include "invar/io/event_log.h"

#include <cmath>

#include "invar/core/formats.h"
#include "invar/io/events.h"
#include "tests/core/expect_error.h"
#include "tests/io/proto_bytes.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

using proto::number, proto::raw, proto::record, proto::simple, proto::tensor;
using Points = EventLog::Points;

EventLog read(const std::string& file) {
    EventLog log;
    log.add(file, "F");
    return log;
}

TEST(EventLog, ReadsWhatTheWriterWrote) {
    const Scratch scratch;
    EventFile file(scratch.path());
    for (int step = 1; step <= 3; ++step) file.scalar("loss", step, 1.0 / step), file.scalar("val/acc", step, 0.5);
    file.flush();
    const EventLog log = read(read_file(file.path()));
    EXPECT_EQ(log.scalars().at("loss"), (Points{{1, 1.0}, {2, 0.5}, {3, double(1.0f / 3)}}));
    EXPECT_EQ(log.scalars().at("val/acc").size(), 3u);
    EXPECT_EQ(log.note(), "");
}

TEST(EventLog, ReadsScalarsThatAreTensors) {
    const auto packed = [](int field, const std::string& values) { return proto::bytes(field, values); };
    const EventLog log = read(tensor(1, "float_val", number(1, 1) + proto::bytes(2, "") + packed(5, raw(0.25f))) +
                              tensor(1, "content", number(1, 1) + packed(4, raw(-1.5f))) +
                              tensor(1, "double", number(1, 2) + packed(6, raw(1e300))) +
                              tensor(1, "unpacked", number(1, 1) + proto::fixed(5, 2.5f)) +
                              tensor(1, "int64", number(1, 9) + packed(10, proto::varint(std::uint64_t(-7)))) +
                              tensor(1, "int32", number(1, 3) + number(7, 5)) +
                              tensor(1, "half", number(1, 19) + packed(13, proto::varint(f16(1.5).bits))) +
                              tensor(1, "bf16", number(1, 14) + packed(4, raw(bf16(-2.0).bits))) +
                              tensor(1, "nan", number(1, 1) + packed(5, raw(NAN))));
    const std::map<std::string, double> expected = {{"float_val", 0.25}, {"content", -1.5}, {"double", 1e300},
                                                    {"unpacked", 2.5},   {"int64", -7},     {"int32", 5},
                                                    {"half", 1.5},       {"bf16", -2}};
    for (const auto& [tag, value] : expected) {
        ASSERT_TRUE(log.scalars().contains(tag)) << tag;
        EXPECT_EQ(log.scalars().at(tag).at(1), value) << tag;
    }
    EXPECT_TRUE(std::isnan(log.scalars().at("nan").at(1)));
}

TEST(EventLog, PassesOverWhatIsNoScalar) {
    const std::string shape = proto::bytes(2, proto::bytes(2, number(1, 2)));
    const std::string one = number(1, 1) + proto::bytes(5, raw(1.0f));
    EXPECT_TRUE(read(tensor(1, "vector", number(1, 1) + shape + proto::bytes(5, raw(1.0f) + raw(2.0f))) +
                     tensor(1, "text", number(1, 7) + proto::bytes(8, "hello"), "text") +
                     tensor(1, "_hparams_/x", one, "hparams") + tensor(1, "empty", number(1, 1)) +
                     tensor(1, "none", number(1, 9) + proto::bytes(10, "")) +
                     tensor(1, "strange", number(1, 8) + proto::bytes(4, "1234")) +
                     proto::summary(1, proto::bytes(1, "image") + proto::bytes(4, "png")) +
                     record(proto::bytes(3, "brain.Event:2")))
                    .scalars()
                    .empty());
}

TEST(EventLog, LetsTheLaterValueOfAStepStand) {
    EventLog log;
    log.add(simple(10, "loss", 3) + simple(20, "loss", 2) + simple(30, "loss", 1), "a");
    log.add(simple(20, "loss", 5) + simple(40, "loss", 4), "b");
    EXPECT_EQ(log.scalars().at("loss"), (Points{{10, 3}, {20, 5}, {30, 1}, {40, 4}}));
}

TEST(EventLog, DropsWhatASessionThatBeginsAgainGoesOver) {
    EventLog log;
    log.add(simple(10, "loss", 3) + simple(20, "loss", 2) + simple(30, "acc", 1), "a");
    log.add(record(number(2, 20) + proto::bytes(7, number(1, 1))) + simple(25, "loss", 4), "b");
    EXPECT_EQ(log.scalars().at("loss"), (Points{{10, 3}, {25, 4}}));
    EXPECT_TRUE(log.scalars().at("acc").empty());
}

TEST(EventLog, NotesATornEndAndReadsWhatCameBefore) {
    const std::string whole = simple(1, "loss", 3), more = simple(2, "loss", 2);
    for (std::size_t cut = 1; cut < more.size(); ++cut) {
        const EventLog log = read(whole + more.substr(0, cut));
        EXPECT_EQ(log.scalars().at("loss"), (Points{{1, 3}})) << cut;
        EXPECT_EQ(log.note(), "F ends in the middle of a record, which is left out") << cut;
    }
}

TEST(EventLog, RefusesEveryBitThatIsWrong) {
    const std::string first = simple(1, "loss", 3), file = first + simple(2, "loss", 2);
    for (std::size_t at = 0; at < first.size(); ++at) {
        std::string damaged = file;
        damaged[at] = char(damaged[at] ^ 4);
        EXPECT_ERROR(read(damaged), IoError, "F: record 1");
    }
    EXPECT_ERROR(read("this is no event file at all"), IoError, "is no event file");
}

TEST(EventLog, BelievesNoLengthOfAFieldBeyondItsRecord) {
    const std::string key = proto::varint(5 << 3 | 2);
    EXPECT_ERROR(read(record(key + proto::varint(std::uint64_t(1) << 62))), IoError, "F: record 1: a field of");
    EXPECT_ERROR(read(record(std::string(11, '\xff'))), IoError, "more than 64 bits");
    EXPECT_ERROR(read(record("\x0b")), IoError, "unknown type");
    EXPECT_ERROR(read(record(std::string(1, '\0'))), IoError, "the number 0");
    EXPECT_ERROR(read(simple(1, "a", 1) + record("\x10")), IoError, "F: record 2");
}

}  // namespace
}  // namespace invar
