#include "invar/text/file_parts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "invar/core/error.h"
#include "invar/io/descriptor.h"

namespace invar::text {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLookAhead = 4096;  // bytes behind a part that it may look at
constexpr std::size_t kPartsPerThread = 4;

// A place to cut at or behind `from`: where a line begins with something other than a blank, or else before a blank
// behind something other. `npos` where there is none that something follows.
std::size_t place_to_cut(std::string_view text, std::size_t from) {
    const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    for (std::size_t at = from; (at = text.find('\n', at)) != text.npos; ++at)
        if (at + 1 < text.size() && !blank(text[at + 1])) return at + 1;
    for (std::size_t at = std::max<std::size_t>(from, 1); (at = text.find(' ', at)) != text.npos; ++at)
        if (!blank(text[at - 1])) return at;
    return text.npos;
}

class Worker {
  public:
    using Work = std::function<std::unique_ptr<PartResult>(const FilePart&, int)>;
    using Accept = std::function<void(const FilePart&, PartResult&)>;

    Worker(const FilePartsOptions& options, const Work& work, const Accept& accept)
        : options_(options), work_(work), accept_(accept), threads_(thread_count(options)) {
        round_bytes_ = options_.part_bytes * kPartsPerThread * std::size_t(threads_);
    }

    void add_file(const fs::path& path, std::size_t index) {
        const Descriptor file = Descriptor::open_stream(path);
        std::string text;
        bool first = true, ended = false;
        std::size_t wanted = round_bytes_;
        while (!ended && !stopped_) {
            ended = !read_until(file, path, text, wanted);
            const auto buffer = std::make_shared<const std::string>(std::move(text));
            const std::size_t last_cut = cut_up(buffer, index, first, ended);
            if (ended) break;
            const std::size_t done = flush().value_or(last_cut);
            // Where nothing could be cut at all, more has to be seen at once.
            wanted = done > 0 ? round_bytes_ : 2 * buffer->size();
            first = first && done == 0;
            text = buffer->substr(done);
        }
        if (waiting_bytes_ >= round_bytes_) flush();
    }

    // Works on all that is waiting, and has it accepted in order. Where the last parts could not be cut, the place in
    // their file's buffer from which they are still to be done.
    std::optional<std::size_t> flush() {
        results_.clear();
        results_.resize(parts_.size());
        run();
        std::optional<std::size_t> left;
        for (std::size_t i = 0; i < parts_.size() && !stopped_;) {
            FilePart part = parts_[i].part;
            std::unique_ptr<PartResult> result = std::move(results_[i]);
            std::size_t end = i + 1;  // behind the parts that are in it
            std::size_t file_end = end;
            while (file_end < parts_.size() && parts_[file_end].part.file == part.file) ++file_end;
            for (std::size_t more = 1; !result; more *= 2) {
                const std::size_t joined = std::min(end + more, file_end);
                if (joined == end) {  // the end of the file would have done for a cut, so it goes on
                    left = parts_[i].begin;
                    break;
                }
                end = joined;
                const Waiting& last = parts_[end - 1];
                part.text = std::string_view(*last.buffer).substr(parts_[i].begin, last.end - parts_[i].begin);
                part.next = last.part.next;
                part.ends_file = last.part.ends_file;
                result = work_(part, 0);
            }
            if (left) break;
            accept_(part, *result);
            done_bytes_ += part.text.size();
            stopped_ = !options_.progress(done_bytes_);
            i = end;
        }
        parts_.clear();
        waiting_bytes_ = 0;
        return left;
    }

    bool stopped() const { return stopped_; }

  private:
    struct Waiting {
        FilePart part;
        std::shared_ptr<const std::string> buffer;
        std::size_t begin = 0, end = 0;  // in the buffer
    };

    // False at the end of the file.
    static bool read_until(const Descriptor& file, const fs::path& path, std::string& text, std::size_t wanted) {
        while (text.size() < wanted) {
            const std::size_t had = text.size();
            // As much again as there is: thousands of small files wait together, and none has megabytes it does not
            // fill.
            text.resize(std::min(wanted, had + std::clamp(had, std::size_t(64) << 10, std::size_t(8) << 20)));
            ssize_t got;
            do got = ::read(file.get(), text.data() + had, text.size() - had);
            while (got < 0 && errno == EINTR);
            if (got < 0) fail_with_errno("read", path, errno);
            text.resize(had + std::size_t(got));
            if (got == 0) return false;
        }
        return true;
    }

    // Puts the parts of the buffer into the queue, up to the last place to cut, or all at the end of the file.
    std::size_t cut_up(const std::shared_ptr<const std::string>& buffer, std::size_t index, bool first, bool ended) {
        const std::string_view text = *buffer;
        std::size_t begin = 0;
        const auto add = [&](std::size_t end, bool last) {
            parts_.push_back(
                {{text.substr(begin, end - begin), text.substr(end, kLookAhead), first && begin == 0, last, index},
                 buffer,
                 begin,
                 end});
            waiting_bytes_ += end - begin;
            begin = end;
        };
        while (text.size() - begin > options_.part_bytes) {
            const std::size_t end = place_to_cut(text, begin + options_.part_bytes);
            // What follows must be in sight, or be all there is.
            if (end == text.npos || (!ended && text.size() - end < kLookAhead)) break;
            add(end, false);
        }
        if (ended) add(text.size(), true);
        return begin;
    }

    void run() {
        std::atomic<std::size_t> next{0};
        std::exception_ptr failure;
        std::mutex mutex;
        const auto take = [&](int thread) {
            try {
                for (std::size_t i; (i = next++) < parts_.size();) results_[i] = work_(parts_[i].part, thread);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
                next = parts_.size();
            }
        };
        std::vector<std::thread> others;
        try {
            for (int i = 1; i < threads_ && std::size_t(i) < parts_.size(); ++i) others.emplace_back(take, i);
        } catch (const std::system_error&) {
            // The system lends no more threads (`ulimit -u`); those that there are will do.
        }
        take(0);
        for (std::thread& thread : others) thread.join();
        if (failure) std::rethrow_exception(failure);
    }

    const FilePartsOptions& options_;
    const Work& work_;
    const Accept& accept_;
    int threads_;
    std::size_t round_bytes_ = 0, waiting_bytes_ = 0;
    std::uint64_t done_bytes_ = 0;
    bool stopped_ = false;
    std::vector<Waiting> parts_;
    std::vector<std::unique_ptr<PartResult>> results_;
};

}  // namespace

int thread_count(const FilePartsOptions& options) {
    return options.threads > 0 ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
}

bool work_on_files(const std::vector<fs::path>& files, const FilePartsOptions& options,
                   const std::function<std::unique_ptr<PartResult>(const FilePart&, int)>& work,
                   const std::function<void(const FilePart&, PartResult&)>& accept) {
    Worker worker(options, work, accept);
    for (std::size_t i = 0; i < files.size() && !worker.stopped(); ++i) worker.add_file(files[i], i);
    if (!worker.stopped()) worker.flush();
    return !worker.stopped();
}

}  // namespace invar::text
