#include "invar/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "scratch.h"
#include "tests/io/full_disk.h"

namespace invar {

TEST(ReadFile, ReturnsEveryByte) {
    const Scratch scratch;
    std::string bytes;
    for (int i = 0; i < 200'000; ++i) bytes += char(i * 31);
    put(scratch / "a", bytes);
    EXPECT_EQ(read_file(scratch / "a"), bytes);
    put(scratch / "empty", "");
    EXPECT_EQ(read_file(scratch / "empty"), "");
    EXPECT_FALSE(read_file("/proc/self/status").empty()) << "files without a size are read to their end";
}

TEST(ReadFile, RefusesAPipeAtOnceUnlessThisProcessWasHandedIt) {
    const Scratch scratch;
    ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
    EXPECT_TRUE(has(message_of<IoError>([&] { read_file(scratch / "pipe"); }), "it is a pipe"));
    EXPECT_TRUE(has(message_of<IoError>([&] { AppendFile(scratch / "pipe"); }), "it is a pipe"));
    EXPECT_TRUE(has(message_of<IoError>([] { read_file("/dev/zero"); }), "it is a device"));
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], "handed", 6), 6);
    ::close(ends[1]);
    EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0])), "handed");
    ::close(ends[0]);
}

TEST(ReadFile, StopsAtTheMostThatSuchAFileMayHold) {
    const Scratch scratch;
    put(scratch / "a", "12345");
    EXPECT_EQ(read_file(scratch / "a", 5), "12345");
    EXPECT_TRUE(has(message_of<IoError>([&] { read_file(scratch / "a", 4); }), "more than the 4 bytes"));
}

TEST(ReadFile, NamesTheFileAndTheReason) {
    const Scratch scratch;
    const std::string missing = message_of<IoError>([&] { read_file(scratch / "none"); });
    EXPECT_TRUE(has(missing, "none: No such file") && has(missing, "check the path")) << missing;
    const std::string folder = message_of<IoError>([&] { read_file(scratch.path()); });
    EXPECT_TRUE(has(folder, "Is a directory")) << folder;
}

TEST(WriteFileAtomically, ReplacesTheWholeFileAndLeavesNothingElse) {
    const Scratch scratch;
    write_file_atomically(scratch / "a", "a long first content");
    const std::string_view pieces[] = {"two", "", "pieces"};
    write_file_atomically(scratch / "a", pieces);
    EXPECT_EQ(read_file(scratch / "a"), "twopieces");
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"a"});
}

TEST(WriteFileAtomically, OnAFullDiskLeavesTheOldFileAndNoTemporary) {
    const Scratch scratch;
    write_file_atomically(scratch / "a", "old");
    const std::string big(1 << 20, 'x');
    std::string message;
    {
        const FullDisk full(100'000);
        message = message_of<IoError>([&] { write_file_atomically(scratch / "a", big); });
    }
    EXPECT_TRUE(has(message, "free space or choose another folder")) << message;
    EXPECT_EQ(read_file(scratch / "a"), "old");
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"a"});
}

TEST(WriteFileAtomically, SaysWhatIsWrongWithThePath) {
    const Scratch scratch;
    put(scratch / "file", "precious");
    for (const std::filesystem::path& path :
         {scratch / "no_folder/a", scratch / "file/a", std::filesystem::path("/proc/invar_test"),
          scratch / std::string(300, 'n')}) {
        const std::string message = message_of<IoError>([&] { write_file_atomically(path, "x"); });
        EXPECT_TRUE(has(message, "cannot write") && has(message, path.filename().string())) << message;
    }
    EXPECT_EQ(read_file(scratch / "file"), "precious");
    EXPECT_THROW(write_file_atomically("", "x"), UsageError);
}

TEST(WriteFileAtomically, RefusesToReplaceWhatIsNoOrdinaryFile) {
    const Scratch scratch;
    EXPECT_TRUE(has(message_of<IoError>([] { write_file_atomically("/dev/null", "x"); }), "not an ordinary file"));
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
    EXPECT_THROW(write_file_atomically(scratch.path(), "x"), IoError);
    EXPECT_TRUE(scratch.names().empty());
}

// Whoever reads it knows the file by the name that it is to have.
TEST(WriteFileAtomically, TellsNoTemporaryNames) {
    const Scratch scratch;
    EXPECT_EQ(without_temporary_name("runs/x/.1.jpg.25268-4.invar-tmp"), "runs/x/1.jpg");
    EXPECT_EQ(without_temporary_name("runs/x/.1.jpg"), "runs/x/.1.jpg");
    const std::string message = message_of<IoError>([&] { write_file_atomically(scratch / "none/a.txt", "x"); });
    EXPECT_TRUE(has(message, "none/a.txt: ")) << message;
    EXPECT_FALSE(has(message, "tmp:")) << message;
}

TEST(SweepTemporaries, RemovesWhatTheDeadLeftAndNothingElse) {
    const Scratch scratch;
    put(scratch / ".a.1-0.invar-tmp", "abandoned");
    put(scratch / "a.invar-tmp", "not hidden, so not ours");
    put(scratch / ".a.tmp", "somebody else's");
    sweep_temporaries(scratch.path());
    EXPECT_FALSE(std::filesystem::exists(scratch / ".a.1-0.invar-tmp"));
    EXPECT_EQ(scratch.names().size(), 2u);
    sweep_temporaries(scratch / "no such folder");
}

TEST(SweepTemporaries, LeavesWhatIsStillBeingWritten) {
    const Scratch scratch;
    // A writer at work: a child that is stopped for good while it holds a fresh temporary of a huge file.
    const pid_t writer = ::fork();
    if (writer == 0) {
        const std::string block(1 << 16, 'x');
        const std::vector<std::string_view> pieces(1 << 20, block);
        try {
            write_file_atomically(scratch / "huge", pieces);
        } catch (const Error&) {
        }
        ::_exit(0);
    }
    while (scratch.names().empty()) ::usleep(1000);
    ::usleep(5000);
    ::kill(writer, SIGSTOP);
    sweep_temporaries(scratch.path());
    EXPECT_EQ(scratch.names().size(), 1u);
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    sweep_temporaries(scratch.path());
    EXPECT_TRUE(scratch.names().empty());
}

TEST(AppendFile, AddsWholeLinesToWhatIsThere) {
    const Scratch scratch;
    put(scratch / "log", "first\n");
    AppendFile log(scratch / "log");
    log.line("second");
    log.line("");
    EXPECT_EQ(read_file(scratch / "log"), "first\nsecond\n\n");
    EXPECT_THROW(log.line("two\nlines"), UsageError);
    EXPECT_EQ(log.size(), 14u);
}

TEST(AppendFile, GoesBackToAByteButNeverPastItsEnd) {
    const Scratch scratch;
    AppendFile log(scratch / "log");
    log.line("kept");
    const std::uint64_t place = log.size();
    log.line("after the checkpoint");
    log.truncate(place);
    log.line("again");
    EXPECT_EQ(read_file(scratch / "log"), "kept\nagain\n");
    EXPECT_TRUE(has(message_of<IoError>([&] { log.truncate(1000); }), "has only 11"));
    EXPECT_EQ(read_file(scratch / "log"), "kept\nagain\n");
}

TEST(AppendFile, KeepsWhatTheDiskHasNoRoomForUntilItHas) {
    const Scratch scratch;
    AppendFile log(scratch / "log");
    log.line("whole");
    {
        const FullDisk full(10);
        log.line("this line does not fit");
        log.line("x");
        EXPECT_TRUE(has(log.problem(), "free space")) << log.problem();
        EXPECT_EQ(read_file(scratch / "log"), "whole\n") << "no part of a line, and none before its turn";
        const std::string message = message_of<IoError>([&] { log.sync(); });
        EXPECT_EQ(message, log.problem()) << "what is not on the disk is not said to be";
    }
    log.sync();
    EXPECT_EQ(log.problem(), "");
    EXPECT_EQ(read_file(scratch / "log"), "whole\nthis line does not fit\nx\n");
    {
        const FullDisk full(10);
        log.line("again");
    }
    log.line("later");
    EXPECT_EQ(log.problem(), "");
    EXPECT_EQ(read_file(scratch / "log"), "whole\nthis line does not fit\nx\nagain\nlater\n");
}

TEST(AppendFile, ForgetsWhatWaitsWhenItGoesBack) {
    const Scratch scratch;
    AppendFile log(scratch / "log");
    log.line("kept");
    {
        const FullDisk full(5);
        log.line("after the checkpoint");
    }
    log.truncate(5);
    EXPECT_EQ(log.problem(), "");
    log.line("again");
    EXPECT_EQ(read_file(scratch / "log"), "kept\nagain\n");
}

TEST(AppendFile, DoesNotFillTheMemoryInTheDisksStead) {
    const Scratch scratch;
    AppendFile log(scratch / "log");
    const FullDisk full(10);
    const std::string megabyte(1 << 20, 'x');
    for (int i = 0; i < 16; ++i) log.append(megabyte);
    EXPECT_TRUE(has(message_of<IoError>([&] { log.append(megabyte); }), "free space"));
}

TEST(AppendFile, IsWrittenAnewUnderItsNameWithAllItHeld) {
    const Scratch scratch;
    const Descriptor folder = Descriptor::open(scratch.path(), O_RDONLY | O_DIRECTORY, "open");
    AppendFile log(scratch / "log");
    log.line("first");
    EXPECT_EQ(log.named_in(folder), NamedNow::this_file);
    std::filesystem::remove(scratch / "log");
    log.line("second");
    EXPECT_EQ(log.named_in(folder), NamedNow::nothing);
    log.write_anew(scratch / "log");
    EXPECT_EQ(log.named_in(folder), NamedNow::this_file);
    log.line("third");
    EXPECT_EQ(read_file(scratch / "log"), "first\nsecond\nthird\n");
    put(scratch / "other", "");
    std::filesystem::rename(scratch / "other", scratch / "log");
    EXPECT_EQ(log.named_in(folder), NamedNow::another_file);
    EXPECT_EQ(log.content(), "first\nsecond\nthird\n");
    EXPECT_EQ(log.take_lost(), 0u);
}

TEST(AppendFile, CountsWhatOthersHaveCutOff) {
    const Scratch scratch;
    AppendFile log(scratch / "log");
    log.line("ten bytes");
    std::filesystem::resize_file(scratch / "log", 4);
    log.line("more");
    std::filesystem::resize_file(scratch / "log", 0);
    EXPECT_EQ(log.take_lost(), 15u);
    EXPECT_EQ(log.take_lost(), 0u);
    log.line("again");
    log.truncate(2);
    EXPECT_EQ(log.take_lost(), 0u) << "that was ourselves";
}

TEST(AppendFile, ALineAfterACutInTheMiddleOfOneStandsAlone) {
    const Scratch scratch;
    for (const bool asked : {false, true}) {
        const std::filesystem::path path = scratch / (asked ? "asked" : "log");
        AppendFile file(path);
        file.line("one");
        file.line("two");
        std::filesystem::resize_file(path, 6);  // "one\ntw"
        if (asked) {
            EXPECT_EQ(file.take_lost(), 2u);
        }
        file.line("three");
        EXPECT_EQ(read_file(path), "one\nthree\n");
        EXPECT_EQ(file.take_lost(), asked ? 2u : 4u);
    }
}

TEST(FreeName, IsOneThatNothingHas) {
    const Scratch scratch;
    EXPECT_EQ(free_name(scratch / "log", ".kept"), scratch / "log.kept");
    put(scratch / "log.kept", "");
    std::filesystem::create_symlink("nowhere", scratch / "log.kept_2");
    EXPECT_EQ(free_name(scratch / "log", ".kept"), scratch / "log.kept_3");
}

TEST(AppendFile, RefusesADevice) {
    EXPECT_TRUE(has(message_of<IoError>([&] { AppendFile("/dev/full"); }), "it is a device; name an ordinary file"));
}

TEST(AppendFile, CreateRefusesAnExistingFile) {
    const Scratch scratch;
    put(scratch / "log", "x");
    EXPECT_THROW(AppendFile::create(scratch / "log"), IoError);
    EXPECT_EQ(read_file(scratch / "log"), "x");
}

TEST(FolderLock, KeepsASecondRunOutUntilTheFirstEnds) {
    const Scratch scratch;
    {
        const FolderLock lock(scratch.path());
        const std::string message = message_of<IoError>([&] { FolderLock second(scratch.path()); });
        EXPECT_TRUE(has(message, std::to_string(::getpid())) && has(message, "output_dir=")) << message;
    }
    FolderLock again(scratch.path());
}

TEST(FolderLock, KeepsASecondRunOutAlsoWhereItsFileWasDeleted) {
    const Scratch scratch;
    FolderLock lock(scratch.path());
    std::filesystem::remove(scratch / ".lock");
    EXPECT_FALSE(FolderLock::try_lock(scratch.path()));
    EXPECT_TRUE(has(message_of<IoError>([&] { FolderLock second(scratch.path()); }), "another run"));
}

TEST(FolderLock, HasItsFileAgainWhereThatWasDeletedOrReplaced) {
    const Scratch scratch;
    FolderLock lock(scratch.path());
    EXPECT_FALSE(lock.renew(scratch.path()));
    std::filesystem::remove(scratch / ".lock");
    EXPECT_TRUE(lock.renew(scratch.path()));
    put(scratch / "other", "12");
    std::filesystem::rename(scratch / "other", scratch / ".lock");
    EXPECT_TRUE(lock.renew(scratch.path()));
    EXPECT_EQ(read_file(scratch / ".lock"), std::to_string(::getpid()));
    EXPECT_FALSE(lock.renew(scratch.path()));
}

// On a disk that locks files and not folders, a second run can come in once the file is gone.
TEST(FolderLock, IsNotRenewedWhereAnotherHasTakenTheFile) {
    const Scratch scratch;
    FolderLock lock(scratch.path());
    std::filesystem::remove(scratch / ".lock");
    put(scratch / ".lock", "4711");
    const Descriptor other = Descriptor::open(scratch / ".lock", O_RDWR, "lock");
    ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_TRUE(has(message_of<IoError>([&] { lock.renew(scratch.path()); }), "another run (process 4711)"));
}

TEST(FolderLock, EndsWithAKilledProcess) {
    const Scratch scratch;
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
        const FolderLock lock(scratch.path());
        (void)!::write(ready[1], "x", 1);
        for (;;) ::pause();
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_THROW(FolderLock(scratch.path()), IoError);
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    FolderLock mine(scratch.path());
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(MakeFolders, RefusesAFileInTheWay) {
    const Scratch scratch;
    make_folders(scratch / "a/b/c");
    make_folders(scratch / "a/b/c");
    EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/c"));
    put(scratch / "file", "x");
    EXPECT_THROW(make_folders(scratch / "file"), IoError);
    EXPECT_THROW(make_folders(scratch / "file/below"), IoError);
}

}  // namespace invar
