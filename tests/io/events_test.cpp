#include "invar/io/events.h"

#include <cmath>

#include "scratch.h"
#include "tests/io/event_reader.h"
#include "tests/io/full_disk.h"

namespace invar {

TEST(EventFile, WritesRecordsThatAnIndependentReaderUnderstands) {
    ASSERT_EQ(slow_crc("123456789"), 0xE3069283u);
    const Scratch scratch;
    EventFile file(scratch / "tensorboard");
    EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents."));
    file.scalar("loss/train", 1, 0.1);
    file.scalar("scale", 300, 65536);
    file.scalar("grad_norm", std::int64_t(1) << 40, INFINITY);
    file.scalar(std::string(500, 'x'), -1, -0.0);
    file.flush();
    const std::vector<Event> events = read_events(file.path());
    ASSERT_EQ(events.size(), 6u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_GT(events[0].wall_time, 1.6e9);
    EXPECT_EQ(events[2].tag, "loss/train");
    EXPECT_EQ(events[2].step, 1);
    EXPECT_EQ(events[2].value, 0.1f);
    EXPECT_EQ(events[3].step, 300);
    EXPECT_EQ(events[3].value, 65536.f);
    EXPECT_EQ(events[4].step, std::int64_t(1) << 40);
    EXPECT_TRUE(std::isinf(events[4].value));
    EXPECT_EQ(events[5].step, -1);
    EXPECT_EQ(events[5].tag.size(), 500u);
    EXPECT_TRUE(events[1].session_start);
    EXPECT_FALSE(events[2].session_start);
}

TEST(EventFile, HoldsOnlyWholeRecordsAtAnyFlush) {
    const Scratch scratch;
    EventFile file(scratch.path());
    for (int step = 0; step < 3000; ++step) {
        file.scalar("a", step, step);
        if (step % 500 == 0) (void)read_events(file.path());
    }
    file.flush();
    EXPECT_EQ(read_events(file.path()).size(), 3002u);
}

TEST(EventFile, OfAResumedRunTellsTensorBoardWhereItStarts) {
    const Scratch scratch;
    const EventFile file(scratch.path(), 42);
    const std::vector<Event> events = read_events(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_TRUE(events[1].session_start);
    EXPECT_EQ(events[1].step, 43);
}

TEST(EventFile, TwoOfOneSecondDoNotShareAFile) {
    const Scratch scratch;
    const EventFile a(scratch.path()), b(scratch.path()), c(scratch.path());
    EXPECT_EQ(scratch.names().size(), 3u);
}

TEST(EventFile, WritesWhatIsPendingWhenItEnds) {
    const Scratch scratch;
    std::filesystem::path path;
    {
        EventFile file(scratch.path());
        path = file.path();
        file.scalar("a", 1, 2);
    }
    EXPECT_EQ(read_events(path).size(), 3u);
}

TEST(EventFile, OfAResumedRunHasTensorBoardDropOnlyWhatIsRepeated) {
    const Scratch scratch;
    {
        EventFile first(scratch.path());
        for (int step = 1; step <= 5; ++step) first.scalar("loss", step, step);
    }
    for (const int last : {3, 3}) {  // and once more from the same checkpoint
        EventFile next(scratch.path(), last);
        for (int step = last + 1; step <= 4; ++step) next.scalar("loss", step, 10 * step);
    }
    EXPECT_EQ(shown_by_tensorboard(scratch.path()).at("loss"), (Points{{1, 1}, {2, 2}, {3, 3}, {4, 40}}));
}

TEST(EventFile, HasEveryRecordOnceAfterADiskWasFull) {
    const Scratch scratch;
    EventFile file(scratch.path());
    {
        const FullDisk full(std::filesystem::file_size(file.path()) + 10);
        for (int step = 1; step <= 3; ++step) {
            file.scalar("loss", step, step);
            file.flush();
        }
        EXPECT_NE(file.problem(), "");
        EXPECT_THROW(file.sync(), IoError);
        EXPECT_EQ(read_events(file.path()).size(), 2u) << "no part of a record";
    }
    file.sync();
    EXPECT_EQ(file.problem(), "");
    EXPECT_EQ(shown_by_tensorboard(scratch.path()).at("loss"), (Points{{1, 1}, {2, 2}, {3, 3}}));
}

TEST(EventFile, RefusesAFolderItCannotMake) {
    const Scratch scratch;
    put(scratch / "file", "x");
    EXPECT_THROW(EventFile(scratch / "file"), IoError);
}

}  // namespace invar
