// Text files of any size, read part by part and worked on by all cores, as if each were one text. A file is cut where a
// line begins; whether that is a place where it may be cut is for the work on the part before it to say, which sees
// what follows. Where it says no, that part is done again together with the next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace invar::text {

struct FilePart {
    std::string_view text;
    std::string_view next;  // the beginning of what follows; empty at the end of the file
    bool begins_file = false;
    bool ends_file = false;
    std::size_t file = 0;  // its place in the list
};

struct FilePartsOptions {
    int threads = 0;                                // 0 for one per core
    std::size_t part_bytes = std::size_t(1) << 20;  // about
    // Bytes that are done with, of all files together. The work stops where it returns false.
    std::function<bool(std::uint64_t)> progress = [](std::uint64_t) { return true; };
};

int thread_count(const FilePartsOptions& options);

// What work leaves for accept; null where the part must not end there.
struct PartResult {
    virtual ~PartResult() = default;
};

// `work` is called on any of `threads` threads, whose number it gets, and `accept` in order on this one, for parts that
// follow each other without gaps. False where progress has stopped it.
bool work_on_files(const std::vector<std::filesystem::path>& files, const FilePartsOptions& options,
                   const std::function<std::unique_ptr<PartResult>(const FilePart&, int thread)>& work,
                   const std::function<void(const FilePart&, PartResult&)>& accept);

}  // namespace invar::text
