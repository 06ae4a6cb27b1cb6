// MPI as a Transport. Built once with Open MPI and once with MPICH, whose programs cannot be exchanged. All calls come
// from one thread, the one that started MPI.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "invar/dist/communicator.h"
#include "invar/dist/transport.h"

namespace invar {

namespace {

using Clock = std::chrono::steady_clock;

// Among ranks that want to know of each other; in bytes, as all of this.
struct Note {
    enum class Kind : std::int32_t { asks, answers, failed };
    Kind kind;
    std::int32_t length = 0;  // of the text
    std::int64_t calls = 0;   // that the sender has come to
    std::int64_t step = -1;   // of training: how many are done; -1: none was begun
    char text[1000] = {};
};
constexpr int kNoteTag = 1, kPieceTag = 2;
constexpr int kPatience = 10;  // times the time-out, for those who live
constexpr std::chrono::milliseconds kToAnswer(2000);

std::string at_step(std::int64_t done) {
    return done < 0 ? "" : fmt::format(" at step {}", done + 1);
}

void check_mpi(int code, const char* what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail<RankError>("{}: {}", what, std::string_view(text, std::size_t(length)));
}

class MpiTransport final : public Transport {
  public:
    explicit MpiTransport(TransportTimeout timeout) : timeout_(timeout) {
        int provided = 0;
        check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
        MPI_Comm_dup(MPI_COMM_WORLD, &data_);
        MPI_Comm_dup(MPI_COMM_WORLD, &notes_);
        for (MPI_Comm comm : {MPI_COMM_WORLD, data_, notes_}) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(data_, &rank_);
        MPI_Comm_size(data_, &size_);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override {
        char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
        int length = 0;
        MPI_Get_library_version(text, &length);
        std::string all(text, std::size_t(length));
#ifdef OPEN_MPI
        return all.substr(0, all.find(','));  // "Open MPI v4.1.4, package: ..."
#else
        const std::size_t begin = all.find_first_of("0123456789");
        return "MPICH " + all.substr(begin, all.find_first_of(" \t\n", begin) - begin);
#endif
    }

    void all_to_all(const void* from, std::size_t bytes, std::size_t part, const Arrived& arrived) override {
        std::array<std::vector<MPI_Request>, 2> travelling;
        for (std::vector<std::byte>& each : parts_) each.resize(part * std::size_t(size_));
        const auto send_off = [&](std::size_t i) {
            const std::size_t begin = i * part;
            if (begin >= bytes) return;
            const auto* const out = static_cast<const std::byte*>(from) + begin;
            travelling[i % 2] = swap_parts(out, bytes, parts_[i % 2].data(), part, std::min(part, bytes - begin));
        };
        send_off(0);
        for (std::size_t i = 0; i * part < bytes; ++i) {
            send_off(i + 1);
            complete(travelling[i % 2], "all_to_all");
            arrived(i * part, std::min(part, bytes - i * part), parts_[i % 2].data());
        }
    }
    void all_gather(const void* from, void* to, std::size_t bytes) override {
        const bool there = from == static_cast<const std::byte*>(to) + std::size_t(rank_) * bytes;
        MPI_Request request;
        check_mpi(MPI_Iallgather(there ? MPI_IN_PLACE : from, count(bytes), MPI_BYTE, to, count(bytes), MPI_BYTE, data_,
                                 &request),
                  "all_gather");
        complete(request, "all_gather");
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        MPI_Request request;
        check_mpi(MPI_Ibcast(data, count(bytes), MPI_BYTE, root, data_, &request), "broadcast");
        complete(request, "broadcast");
    }

    void set_status(std::int64_t step) override {
        step_ = step;
    }

    void listen() override {
        for (;;) {
            int there = 0;
            MPI_Status status;
            check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kNoteTag, notes_, &there, &status), "listen");
            if (!there) break;
            Note note;
            check_mpi(MPI_Recv(&note, sizeof note, MPI_BYTE, status.MPI_SOURCE, kNoteTag, notes_, MPI_STATUS_IGNORE),
                      "listen");
            handle(note, status.MPI_SOURCE);
        }
        std::erase_if(sending_, [](Sending& each) {
            int done = 0;
            return MPI_Test(&each.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
        });
    }

    void look_after(std::chrono::duration<double> waited) override {
        if (waited < timeout_) watched_ = 1;
        if (waited <= asks_after(watched_)) return;
        find_missing(Clock::now() - std::chrono::duration_cast<Clock::duration>(waited));
        ++watched_;
    }

    void tell_failure(const std::string& reason) override {
        Note note{Note::Kind::failed};
        note.length = std::int32_t(std::min(reason.size(), sizeof note.text));
        std::memcpy(note.text, reason.data(), std::size_t(note.length));
        try {
            for (int r = 0; r < size_; ++r)
                if (r != rank_) send(note, r);
            // Small messages are on their way at once where the other side listens; nobody is waited for long.
            const Clock::time_point until = Clock::now() + std::chrono::milliseconds(500);
            while (!sending_.empty() && Clock::now() < until) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                std::erase_if(sending_, [](Sending& each) {
                    int done = 0;
                    return MPI_Test(&each.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
                });
            }
        } catch (const Error&) {  // who cannot be told will notice
        }
    }

    void finish() override {
        MPI_Request request;
        check_mpi(MPI_Ibarrier(data_, &request), "the end");
        complete(request, "the end");
        MPI_Comm_free(&data_);
        MPI_Comm_free(&notes_);
        MPI_Finalize();
    }

  private:
    struct Sending {
        Note note;
        MPI_Request request;
    };

    static int count(std::size_t bytes) {
        check(bytes <= std::size_t(INT_MAX), "{} bytes to one rank at once are more than MPI counts", bytes);
        return int(bytes);
    }

    void send(const Note& note, int to) {
        sending_.push_back({note, MPI_REQUEST_NULL});
        Sending& last = sending_.back();
        last.note.calls = calls_, last.note.step = step_;
        check_mpi(MPI_Isend(&last.note, sizeof(Note), MPI_BYTE, to, kNoteTag, notes_, &last.request), "send");
    }

    void handle(const Note& note, int from) {
        const auto text = [&] {
            return std::string(note.text, std::size_t(std::clamp(note.length, 0, int(sizeof note.text))));
        };
        switch (note.kind) {
            case Note::Kind::asks:
                return send({Note::Kind::answers}, from);
            case Note::Kind::answers:
                if (!answers_.empty()) answers_[std::size_t(from)] = note;
                return;
            case Note::Kind::failed:
                if (text().starts_with("rank ")) throw RankError(text());  // it tells of another
                fail<RankError>("rank {} failed{}: {}", from, at_step(note.step), text());
        }
    }

    // So many bytes to and from every other rank, whose pieces lie so far apart here and there.
    std::vector<MPI_Request> swap_parts(const std::byte* out, std::size_t out_apart, std::byte* in,
                                        std::size_t in_apart, std::size_t bytes) {
        std::vector<MPI_Request> requests;
        for (int away = 1; away < size_; ++away) {
            const int target = (rank_ + away) % size_, source = (rank_ + size_ - away) % size_;
            check_mpi(MPI_Irecv(in + std::size_t(source) * in_apart, count(bytes), MPI_BYTE, source, kPieceTag, data_,
                                &requests.emplace_back()),
                      "all_to_all");
            check_mpi(MPI_Isend(out + std::size_t(target) * out_apart, count(bytes), MPI_BYTE, target, kPieceTag, data_,
                                &requests.emplace_back()),
                      "all_to_all");
        }
        return requests;
    }

    // Tests it again and again: first at once, then with ever longer rests, since ranks may share their cores.
    void complete(MPI_Request& request, const char* what) {
        complete(std::span(&request, 1), what);
    }
    void complete(std::span<MPI_Request> requests, const char* what) {
        ++calls_;
        const Clock::time_point begin = Clock::now();
        int patience = 1;
        for (int tries = 0;; ++tries) {
            int done = 0;
            check_mpi(MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), what);
            if (done) return;
            if (tries < 50) continue;
            if (tries < 200) {
                std::this_thread::yield();
                continue;
            }
            const auto waited = Clock::now() - begin;
            if (tries % 64 == 0) listen();
            if (hurry_.begins()) find_missing(begin);
            if (waited > asks_after(patience)) find_missing(begin), ++patience;
            std::this_thread::sleep_for(std::chrono::microseconds(waited < std::chrono::milliseconds(200) ? 20 : 500));
        }
    }

    // Answers have arrived, or not, when so many time-outs are over.
    std::chrono::milliseconds to_answer() const {
        return std::min(kToAnswer, timeout_ / 2);
    }
    std::chrono::milliseconds asks_after(int timeouts) const {
        return timeout_ * timeouts - to_answer();
    }

    // Asks everybody. Who does not answer is gone or stopped; who does may be writing a checkpoint or reading slow
    // data, and is waited for longer.
    void find_missing(Clock::time_point begin) {
        answers_.assign(std::size_t(size_), {Note::Kind::asks});
        answers_[std::size_t(rank_)] = {Note::Kind::answers, 0, calls_, step_, {}};
        for (int r = 0; r < size_; ++r)
            if (r != rank_) send({Note::Kind::asks}, r);
        const Clock::time_point until = Clock::now() + to_answer();
        const auto answered = [](const Note& note) { return note.kind == Note::Kind::answers; };
        while (Clock::now() < until && !std::ranges::all_of(answers_, answered)) {
            listen();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        struct Some {
            std::string names;
            int first = -1;
            void add(int r) {
                if (names.empty()) first = r;
                names += (names.empty() ? "" : ", ") + std::to_string(r);
            }
        } silent, late;
        std::int64_t least = calls_;
        for (int r = 0; r < size_; ++r) {
            const Note& note = answers_[std::size_t(r)];
            if (!answered(note))
                silent.add(r);
            else
                least = std::min(least, note.calls);
        }
        for (int r = 0; r < size_; ++r)
            if (answered(answers_[std::size_t(r)]) && answers_[std::size_t(r)].calls == least && least < calls_)
                late.add(r);
        const Clock::duration waited = Clock::now() - begin;
        const double seconds = std::chrono::duration<double>(waited).count();
        if (silent.first >= 0)
            throw RankError(
                fmt::format("rank {} gives no answer{}: it has ended, hangs or was stopped (waited {:.0f} s)",
                            silent.names, at_step(step_), seconds),
                silent.first);
        if (waited < asks_after(kPatience)) return;
        if (late.first >= 0)
            throw RankError(
                fmt::format("rank {} lives, but has not come to where the others wait{} for {:.0f} s; is it "
                            "reading slow data, or out of memory?",
                            late.names, at_step(step_), seconds),
                late.first);
        fail<RankError>("the ranks wait for each other{} for {:.0f} s: the network is slow or broken", at_step(step_),
                        seconds);
    }

    // Somebody wants us to stop: whether all are alive to do so together is asked once, soon.
    struct Hurry {
        std::optional<Clock::time_point> since;
        bool asked = false;
        bool begins() {
            if (asked || !world_hurries()) return false;
            if (!since) since = Clock::now();
            return asked = Clock::now() - *since > std::chrono::seconds(3);
        }
    };
    Hurry hurry_;
    const TransportTimeout timeout_;
    int watched_ = 1;  // time-outs in what somebody waits for beside the calls
    MPI_Comm data_ = MPI_COMM_NULL, notes_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    std::int64_t calls_ = 0, step_ = -1;
    std::array<std::vector<std::byte>, 2> parts_;  // of other ranks: one that is looked at, one that comes
    std::list<Sending> sending_;                   // their bytes must stay where they are
    std::vector<Note> answers_;
};

}  // namespace

}  // namespace invar

extern "C" __attribute__((visibility("default"))) invar::Transport* invar_transport_start(
    invar::TransportTimeout timeout, std::string& why) {
    try {
        return new invar::MpiTransport(timeout);
    } catch (const std::exception& error) {
        why = error.what();
        return nullptr;
    }
}
