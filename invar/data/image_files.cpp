#include "invar/data/image_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "invar/core/error.h"
#include "invar/data/file_bytes.h"
#include "invar/image/decode.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::string suffix_of(const fs::path& path) {
    std::string suffix = path.extension().string();
    for (char& c : suffix) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    return suffix;
}

bool is_hidden(const fs::path& path) {
    return path.filename().string().starts_with('.');
}

bool is_one_of(const std::string& suffix, std::initializer_list<const char*> suffixes) {
    return std::ranges::any_of(suffixes, [&](const char* one) { return suffix == one; });
}

// The whole image at an eighth of its size, where the format allows that: all of the file is read all the same.
void decode_once(const fs::path& path) {
    const std::string content = read_data_file(path);
    const ImageSize size = image_size(bytes_of(content), path.string());
    (void)decode_region(bytes_of(content), path.string(), {0, 0, size.height, size.width}, ImageSize{1, 1});
}

}  // namespace

ImageFiles image_files_in(const fs::path& folder) {
    ImageFiles found;
    std::error_code error;
    fs::recursive_directory_iterator at(folder, error), end;
    for (; !error && at != end; at.increment(error)) {
        const bool is_folder = at->is_directory(error);
        if (is_hidden(at->path())) {
            if (is_folder) at.disable_recursion_pending();
            continue;
        }
        if (is_folder) continue;
        const std::string suffix = suffix_of(at->path());
        if (is_one_of(suffix, {".jpg", ".jpeg", ".jpe", ".png", ".webp"}))
            found.files.push_back(at->path());
        else if (is_one_of(suffix, {".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".avif", ".jp2"}) &&
                 found.others++ == 0)
            found.first_other = at->path().string();
    }
    check<UsageError>(!error, "cannot read the folder {}: {}; check the path and its permissions", folder.string(),
                      error.message());
    std::ranges::sort(found.files, {}, [](const fs::path& path) { return path.generic_string(); });
    return found;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    fs::directory_iterator at(folder, error), end;
    for (; !error && at != end; at.increment(error))
        if (at->is_directory(error) && !is_hidden(at->path())) found.push_back(at->path());
    check<UsageError>(!error, "cannot read the folder {}: {}; check the path and its permissions", folder.string(),
                      error.message());
    std::ranges::sort(found, {}, [](const fs::path& path) { return path.filename().string(); });
    return found;
}

std::vector<BrokenFile> find_broken_images(const std::vector<fs::path>& files) {
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::vector<BrokenFile> broken;
    const auto work = [&] {
        for (std::size_t i = next++; i < files.size(); i = next++) {
            std::string why;
            try {
                decode_once(files[i]);
            } catch (const Error& error) {
                why = error.what();
            }
            if (why.empty()) continue;
            const std::lock_guard lock(mutex);
            broken.push_back({i, std::move(why)});
        }
    };
    const unsigned threads = std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, 16);
    {
        std::vector<std::jthread> helpers;
        for (unsigned i = 1; i < threads && i < files.size(); ++i) helpers.emplace_back(work);
        work();
    }
    std::ranges::sort(broken, {}, &BrokenFile::index);
    return broken;
}

std::string broken_note(const std::vector<BrokenFile>& broken, std::size_t all) {
    return fmt::format("{} of {} images cannot be read and {} left out; the first: {}", broken.size(), all,
                       broken.size() == 1 ? "is" : "are", broken.front().why);
}

}  // namespace invar
