#include "invar/formats/inspect.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/io/checksum.h"
#include "invar/io/safetensors.h"

namespace invar {

namespace {

constexpr std::uint64_t kPiece = std::uint64_t(512) << 10;  // bytes; a multiple of every element's size
constexpr std::uint64_t kAhead = std::uint64_t(16) << 20;   // how far the disk is told in advance

// A part of a tensor; or all of it, where a file has to be read from front to back.
struct Piece {
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;
    std::size_t tensor = 0;
    std::uint64_t from = 0;  // in the tensor
    std::size_t bytes = 0;
    std::uint32_t crc32c = 0;            // of what was read, where the file says what it should be
    const OpenStream* stream = nullptr;  // instead of file and entry
    bool only_checked = false;           // read for its checksum, and of no tensor
};

// Every piece is taken by whichever thread is free; results meet under one lock, once a piece. Pieces are read rather
// than mapped: a file that shrinks is then an error, not a signal, and memory stays small however large the file.
class Readers {
  public:
    Readers(std::vector<Piece> pieces, Inspection& result) : pieces_(std::move(pieces)), result_(result) {}

    void run(int threads) {
        const std::size_t most = std::max<std::size_t>(1, pieces_.size());
        const std::size_t count = std::clamp<std::size_t>(std::size_t(std::max(threads, 1)), 1, most);
        std::vector<std::thread> others;
        others.reserve(count);
        try {
            for (std::size_t i = 1; i < count; ++i) others.emplace_back([this] { read(); });
        } catch (const std::system_error&) {
            // The system lends no more threads (`ulimit -u`); those that there are will do.
        }
        read();
        for (std::thread& thread : others) thread.join();
        if (failure_) std::rethrow_exception(failure_);
        check_sums();
    }

  private:
    // The pieces of a tensor lie side by side.
    void check_sums() const {
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const Piece& piece = pieces_[i];
            if (piece.stream != nullptr) continue;
            sum = piece.from == 0 ? piece.crc32c : crc32c_combine(sum, piece.crc32c, piece.bytes);
            if (i + 1 == pieces_.size() || pieces_[i + 1].from == 0) piece.file->check_sum(*piece.entry, sum);
        }
    }

    void read() {
        try {
            std::vector<char> buffer(kPiece);
            for (std::size_t i = 0; (i = next_++) < pieces_.size();) {
                Piece& piece = pieces_[i];
                if (piece.stream != nullptr) {
                    read_through(piece, buffer);
                    continue;
                }
                constexpr std::size_t kPiecesAhead = kAhead / kPiece;
                if (i + kPiecesAhead < pieces_.size() && pieces_[i + kPiecesAhead].stream == nullptr) {
                    const Piece& later = pieces_[i + kPiecesAhead];
                    later.file->announce(*later.entry, later.from, later.bytes);
                }
                piece.file->read(*piece.entry, piece.from, buffer.data(), piece.bytes);
                if (piece.entry->crc32c) piece.crc32c = crc32c({buffer.data(), piece.bytes});
                add(piece, buffer.data(), piece.bytes);
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
            next_ = pieces_.size();
        }
    }

    void read_through(const Piece& piece, std::vector<char>& buffer) {
        const std::unique_ptr<TensorStream> stream = (*piece.stream)();
        while (const std::size_t bytes = stream->read(buffer.data(), buffer.size())) {
            if (!piece.only_checked) add(piece, buffer.data(), bytes);
        }
    }

    void add(const Piece& piece, const char* values, std::size_t bytes) {
        const Dtype dtype = result_.tensors[piece.tensor].dtype;
        Tally tally(result_.formats.size());
        tally_values(dtype, values, bytes / size_of(dtype), result_.formats, tally);
        const std::lock_guard lock(mutex_);
        result_.tensors[piece.tensor].tally.add(tally);
    }

    std::vector<Piece> pieces_;
    Inspection& result_;
    std::atomic<std::size_t> next_{0};
    std::mutex mutex_;
    std::exception_ptr failure_;
};

// The share of counted values whose exponent is below `limit` after a shift.
double share_below(const Tally& tally, int limit, int shift) {
    std::int64_t below = 0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i)
        if (int(i) - 127 + shift < limit) below += tally.exponents[i];
    return double(below) / double(std::max<std::int64_t>(1, tally.counted()));
}

}  // namespace

Inspection inspect(const std::vector<std::filesystem::path>& files, const std::vector<Dtype>& formats, int threads) {
    const auto start = std::chrono::steady_clock::now();
    Inspection result;
    result.formats = formats;
    result.total.name = "total";
    result.total.tally = Tally(formats.size());
    std::list<TensorFile> opened;
    std::vector<Piece> pieces;
    for (const std::filesystem::path& path : files) {
        const TensorFile& file = opened.emplace_back(path);
        result.left_out.insert(result.left_out.end(), file.left_out().begin(), file.left_out().end());
        for (const StoredTensor& stored : file.tensors()) {
            const std::size_t tensor = result.tensors.size();
            result.tensors.push_back({stored.name, stored.dtype, stored.shape, Tally(formats.size())});
            result.bytes += stored.bytes;
            if (stored.file == nullptr) {
                pieces.push_back({.tensor = tensor, .stream = &stored.open});
                continue;
            }
            for (std::uint64_t at = 0; at < stored.bytes; at += kPiece)
                pieces.push_back({stored.file, stored.entry, tensor, at,
                                  static_cast<std::size_t>(std::min(kPiece, stored.bytes - at))});
        }
        for (const OpenStream& stream : file.unread()) pieces.push_back({.stream = &stream, .only_checked = true});
    }
    const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
    Readers(std::move(pieces), result).run(threads > 0 ? threads : cores);
    for (const InspectedTensor& tensor : result.tensors) result.total.tally.add(tensor.tally);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

std::vector<Dtype> parse_formats(const std::string& text) {
    std::vector<Dtype> formats;
    const auto add = [&](Dtype format) {
        if (std::find(formats.begin(), formats.end(), format) == formats.end()) formats.push_back(format);
    };
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        std::string word = text.substr(begin, end - begin);
        begin = end + 1;
        for (char& c : word) c = char(std::tolower(static_cast<unsigned char>(c)));
        if (word == "fp8" || word == "f8" || word == "all") {
            if (word == "all") add(Dtype::f16), add(Dtype::bf16);
            add(Dtype::f8e4m3), add(Dtype::f8e5m2);
        } else if (word == "e4m3" || word == "fp8e4m3" || word == "fp8_e4m3") {
            add(Dtype::f8e4m3);
        } else if (word == "e5m2" || word == "fp8e5m2" || word == "fp8_e5m2") {
            add(Dtype::f8e5m2);
        } else if (word == "fp16" || word == "f16" || word == "float16" || word == "half") {
            add(Dtype::f16);
        } else if (word == "bf16" || word == "bfloat16") {
            add(Dtype::bf16);
        } else {
            fail<UsageError>("--as {}: '{}' is none of fp16, bf16, fp8, e4m3, e5m2", text.substr(0, 80),
                             word.substr(0, 40));
        }
    }
    return formats;
}

Fate fate_of(const Tally& tally, std::size_t format, Dtype dtype) {
    Fate fate;
    const std::int64_t counted = tally.counted();
    if (counted == 0) return fate;
    fate.empty = false;
    const FormatInfo info = format_info(dtype);
    const FormatTally& f = tally.formats.at(format);
    const double n = double(counted);
    fate.overflow = double(f.overflow) / n;
    fate.subnormal = double(f.subnormal) / n;
    fate.vanish = double(f.vanish) / n;
    fate.mean_error = f.kept > 0 ? f.error_sum / double(f.kept) : 0.0;
    fate.max_error = f.max_error;

    const int least = std::ilogb(info.smallest_normal), most = std::ilogb(info.max);
    // What is a little above the largest value is rounded down to it, and has not overflowed.
    fate.head_room = most - std::ilogb(tally.largest);
    if (!std::isfinite(rounded(std::ldexp(tally.largest, fate.head_room), dtype))) --fate.head_room;
    double bits = 0.0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i) {
        const int exponent = int(i) - 127, digits = info.mantissa_bits + 1;
        const int kept = exponent > most ? 0 : exponent >= least ? digits : std::max(0, digits - (least - exponent));
        bits += double(kept) * double(tally.exponents[i]);
    }
    fate.bits = bits / n;

    // Upwards only as far as helps the smallest value, and never beyond what the largest allows.
    const int needed = least - std::ilogb(tally.smallest);
    const bool spoils = f.overflow > 0 || f.vanish > 0 || f.subnormal > 0;
    fate.scale = !spoils ? 0 : std::min(std::max(needed, 0), fate.head_room);
    fate.lost_after = share_below(tally, least, fate.scale);
    const double now = fate.overflow + fate.vanish + fate.subnormal;
    if (fate.lost_after > now) fate.scale = 0, fate.lost_after = now;  // what saves the largest would cost the others
    return fate;
}

}  // namespace invar
