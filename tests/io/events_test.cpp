#include "invar/io/events.h"

#include <algorithm>
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

TEST(EventFile, ComesAfterThoseThatAreThereThoughAClockWasSetBack) {
    const Scratch scratch;
    const std::string later = "events.out.tfevents.99999999999.a";
    std::ofstream(scratch.path() / later) << "";
    { const EventFile file(scratch.path()); }
    std::vector<std::string> names = scratch.names();
    std::ranges::sort(names);
    ASSERT_EQ(names.size(), 2u);
    EXPECT_TRUE(names[0] == later || names[0].starts_with("events.out.tfevents.99999999999.")) << names[0];
    EXPECT_TRUE(names[1].starts_with("events.out.tfevents.99999999999.")) << names[1];
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

TEST(EventFile, OfAResumedRunRemovesTheRecordThatAKillHasTorn) {
    const Scratch scratch;
    std::filesystem::path path;
    std::size_t before_last = 0;
    {
        EventFile first(scratch.path());
        path = first.path();
        for (int step = 1; step <= 3; ++step) {
            first.flush();
            before_last = std::filesystem::file_size(path);
            first.scalar("loss", step, step);
        }
    }
    const std::string whole = read_file(path);
    for (const std::size_t left : {before_last + 1, before_last + 11, before_last + 12, whole.size() - 1}) {
        put(path, whole.substr(0, left));
        EventFile next(scratch.path(), 2);
        EXPECT_EQ(read_events(path).size(), 4u) << left << " bytes were left of " << whole.size();
        next.scalar("loss", 3, 30);
    }
    EXPECT_EQ(shown_by_tensorboard(scratch.path()).at("loss"), (Points{{1, 1}, {2, 2}, {3, 30}}));
    // What is damaged and not cut stays as it is: nothing that can still be read is thrown away.
    std::string damaged = whole;
    damaged[9] ^= 1;
    put(path, damaged);
    const EventFile next(scratch.path(), 2);
    EXPECT_EQ(read_file(path), damaged);
}

TEST(EventFile, GoesOnAfterTheLastWholeRecordWhereSomebodyCutsIt) {
    const Scratch scratch;
    EventFile file(scratch.path());
    for (int step = 1; step <= 3; ++step) file.scalar("loss", step, step);
    file.flush();
    std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 5);
    file.scalar("loss", 4, 4);
    file.flush();
    EXPECT_EQ(shown_by_tensorboard(scratch.path()).at("loss"), (Points{{1, 1}, {2, 2}, {4, 4}}));
    EXPECT_GT(file.file().take_lost(), 5u);
    std::filesystem::resize_file(file.path(), 0);
    file.scalar("loss", 5, 5);
    file.flush();
    const std::vector<Event> events = read_events(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_EQ(events[1].step, 5);
}

TEST(EventFile, RefusesAFolderItCannotMake) {
    const Scratch scratch;
    put(scratch / "file", "x");
    EXPECT_THROW(EventFile(scratch / "file"), IoError);
}

}  // namespace invar
