// Loader: a data set as batches, epoch after epoch, read ahead by threads and handed out strictly in order. What comes
// at which place depends on (seed, epoch) alone, so a run can stop anywhere and go on there.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "invar/data/dataset.h"
#include "invar/data/pixels.h"
#include "invar/kernels/kernels.h"

namespace invar {

struct LoaderOptions {
    std::int64_t batch_size = 32;  // of all parts together
    int part = 0, parts = 1;       // several loaders may read each batch together: this is which of how many
    bool shuffle = true;
    bool drop_last = false;   // leave out a last batch that is not full
    int num_workers = 1;      // threads that read ahead; 0 reads in next()
    int prefetch = 4;         // batches being read or waiting, at most
    std::int64_t limit = -1;  // batches an epoch, at most; negative: all
    std::uint64_t seed = 0;
    Device device{};   // where next() puts the batches
    double mixup = 0;  // samples are mixed in pairs by shares from Beta(mixup, mixup); 0: not at all
};

// The order of `size` samples in an epoch.
std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

// next() and start_epoch() belong to one thread at a time.
class Loader {
  public:
    Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
    ~Loader();  // at any moment; waits only for the batches that are being read
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    // Begins an epoch behind its first `skip_batches` batches, which are not read. What is left of the epoch before is
    // dropped. Where another one follows, its first batches are read while the last ones of this epoch are in use.
    void start_epoch(std::int64_t epoch, std::int64_t skip_batches = 0, bool another_follows = false);
    // The next batch, or nothing at the end of the epoch. Throws what reading the batch threw, and stays there.
    std::optional<Batch> next();

    std::int64_t batches_per_epoch() const { return batches_; }
    std::int64_t samples_per_epoch() const;
    // Where the epoch stands, for a checkpoint: start_epoch(epoch(), position()) goes on from here.
    std::int64_t epoch() const { return epoch_; }
    std::int64_t position() const { return position_; }
    const Dataset& dataset() const { return *dataset_; }
    const LoaderOptions& options() const { return options_; }

  private:
    struct Read {
        Batch batch;
        std::exception_ptr error;
    };
    using Order = std::shared_ptr<const std::vector<std::int64_t>>;

    // A batch that was copied to the device, or is on its way. The copy reads `host` until its ticket is done.
    struct Sent {
        Batch host, device;
        std::uint64_t ticket;
    };

    Batch read(const std::vector<std::int64_t>& order, std::int64_t epoch, std::int64_t number) const;
    Batch::Part part_of(std::int64_t whole) const;
    std::int64_t count_of(std::int64_t whole) const;
    void work(std::stop_token stop);
    Order make_order(std::int64_t epoch) const;
    std::size_t slot(std::int64_t number) const { return std::size_t((begin_ + number) % options_.prefetch); }
    Batch take();  // the next batch that was read; waits for it
    bool can_take();
    void send(Batch batch);
    Batch next_on_device();
    void let_go(std::size_t most);
    void drop_what_was_sent();

    const std::shared_ptr<const Dataset> dataset_;
    const LoaderOptions options_;
    std::int64_t batches_ = 0;
    std::int64_t position_ = 0;  // the batch that next() hands out

    // Where batches go to another device: they are read into memory it copies from, and the next one is sent ahead.
    std::unique_ptr<MemoryPool> reachable_;
    std::unique_ptr<CopyQueue> copies_;
    std::optional<DevicePixels> pixels_;  // where the data have such: they travel as bytes
    std::optional<Sent> ahead_;
    std::deque<Sent> leaving_;  // handed out; what is kept is the host's memory

    // Written by the consumer, under the mutex; read by the workers.
    std::mutex mutex_;
    std::condition_variable_any room_;   // there may be a batch to read
    std::condition_variable_any ready_;  // a batch was read
    std::int64_t epoch_ = -1;
    std::int64_t taken_ = 0;  // the batch that take() takes: position_, or one more where that was sent ahead
    Order order_;
    bool another_follows_ = false;
    std::int64_t begin_ = 0;  // of this epoch, among the batches of those that followed each other
    // Shared with the workers.
    Order next_order_;                       // of the epoch that follows, once batches of it are read
    std::uint64_t round_ = 0;                // counts what was dropped, so that what was read for it is recognised
    std::int64_t claimed_ = 0;               // beyond batches_ they are those of the epoch that follows
    std::vector<std::optional<Read>> done_;  // where batches wait; made once, so a worker cannot fail here

    std::vector<std::jthread> workers_;  // last: stopped and joined before what they use goes away
};

}  // namespace invar
