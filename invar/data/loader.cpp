#include "invar/data/loader.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <system_error>
#include <utility>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/data/mixup.h"

namespace invar {

namespace {

constexpr std::uint64_t kShuffleStream = 0x73687566666c6500;
constexpr int kMaxWorkers = 256;
constexpr int kMaxPrefetch = 4096;
constexpr std::size_t kLeaving = 8;  // batches whose memory may wait for their copies

std::vector<std::int64_t> file_order(std::int64_t size) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), std::int64_t(0));
    return order;
}

std::int64_t count_batches(std::int64_t size, const LoaderOptions& options) {
    const std::int64_t full = size / options.batch_size;
    const std::int64_t all = full + (options.drop_last || size % options.batch_size == 0 ? 0 : 1);
    return options.limit < 0 ? all : std::min(all, options.limit);
}

}  // namespace

std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> order = file_order(size);
    for (std::int64_t i = size - 1; i > 0; --i) {
        const Random4 r = philox(seed, std::uint64_t(i), kShuffleStream + std::uint64_t(epoch));
        const std::uint64_t bits = std::uint64_t(r.v[0]) << 32 | r.v[1];
        std::swap(order[std::size_t(i)], order[std::size_t(bits % std::uint64_t(i + 1))]);
    }
    return order;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
    check<UsageError>(dataset_ != nullptr, "Loader: no data set was given");
    check<UsageError>(options_.batch_size >= 1, "batch_size is {}, expected at least 1", options_.batch_size);
    check<UsageError>(!options_.drop_last || options_.batch_size <= dataset_->size(),
                      "data.batch_size={} is larger than the {} samples of {}, and data.drop_last=true leaves a batch "
                      "out that is not full; use a smaller batch or data.drop_last=false",
                      options_.batch_size, dataset_->size(), dataset_->name());
    check<UsageError>(options_.parts >= 1 && options_.part >= 0 && options_.part < options_.parts,
                      "part {} of {} loaders", options_.part, options_.parts);
    check<UsageError>(options_.num_workers >= 0 && options_.num_workers <= kMaxWorkers,
                      "num_workers is {}, expected 0 to {}", options_.num_workers, kMaxWorkers);
    check<UsageError>(options_.prefetch >= 1 && options_.prefetch <= kMaxPrefetch, "prefetch is {}, expected 1 to {}",
                      options_.prefetch, kMaxPrefetch);
    batches_ = count_batches(dataset_->size(), options_);
    if (std::unique_ptr<RawMemory> memory = kernels_for(options_.device).host_memory())
        reachable_ = std::make_unique<MemoryPool>(Device::cpu(), std::move(memory));
    if (const std::optional<PixelScale> scale = dataset_->pixels(); scale && reachable_)
        pixels_.emplace(*scale, options_.device);
    try {
        for (int i = 0; i < options_.num_workers; ++i) {
            workers_.emplace_back([this](std::stop_token stop) { work(std::move(stop)); });
        }
    } catch (const std::system_error& error) {
        fail("cannot start {} threads to read data: {}; use fewer num_workers", options_.num_workers,
             error.code().message());
    }
}

Loader::~Loader() {
    for (std::jthread& worker : workers_) worker.request_stop();
    try {
        drop_what_was_sent();
    } catch (const Error&) {  // the device has failed, and whoever uses it will hear of that
    }
    copies_.reset();  // waits for them
}

std::int64_t Loader::samples_per_epoch() const {
    return std::min(dataset_->size(), batches_ * options_.batch_size);
}

Loader::Order Loader::make_order(std::int64_t epoch) const {
    return std::make_shared<const std::vector<std::int64_t>>(
        options_.shuffle ? shuffled_order(dataset_->size(), options_.seed, epoch) : file_order(dataset_->size()));
}

void Loader::start_epoch(std::int64_t epoch, std::int64_t skip_batches, bool another_follows) {
    check<UsageError>(epoch >= 0, "start_epoch: epoch {} is negative", epoch);
    check<UsageError>(skip_batches >= 0 && skip_batches <= batches_,
                      "start_epoch: cannot skip {} batches of an epoch of {}", skip_batches, batches_);
    drop_what_was_sent();
    {
        std::unique_lock lock(mutex_);
        const bool follows = another_follows_ && epoch == epoch_ + 1 && skip_batches == 0 && taken_ == batches_;
        Order order = follows ? next_order_ : nullptr;
        if (!order) {
            another_follows_ = false;  // nobody makes it meanwhile
            lock.unlock();
            order = make_order(epoch);
            lock.lock();
        }
        if (follows) {
            begin_ += batches_, claimed_ -= batches_;
        } else {
            ++round_;
            begin_ = 0, claimed_ = skip_batches;
            done_.assign(std::size_t(options_.prefetch), std::nullopt);
        }
        epoch_ = epoch;
        order_ = std::move(order);
        next_order_ = nullptr;
        another_follows_ = another_follows;
        position_ = taken_ = skip_batches;
    }
    room_.notify_all();
}

std::optional<Batch> Loader::next() {
    check<UsageError>(order_ != nullptr, "Loader::next: call start_epoch first");
    if (position_ == batches_) return std::nullopt;
    Batch batch = reachable_ ? next_on_device() : take();
    ++position_;
    return batch;
}

bool Loader::can_take() {
    if (taken_ == batches_ || workers_.empty()) return false;
    const std::lock_guard lock(mutex_);
    const std::optional<Read>& next = done_[slot(taken_)];
    return next.has_value() && !next->error;
}

Batch Loader::take() {
    if (workers_.empty()) {
        Batch batch = read(*order_, epoch_, taken_);
        ++taken_;  // not where it threw
        return batch;
    }
    std::unique_lock lock(mutex_);
    std::optional<Read>& next = done_[slot(taken_)];
    ready_.wait(lock, [&] { return next.has_value(); });
    if (next->error) std::rethrow_exception(next->error);
    Batch batch = std::move(next->batch);
    next.reset();
    ++taken_;
    lock.unlock();
    room_.notify_one();
    return batch;
}

// From the thread that trains: the copies keep their place among what it gives to the device.
void Loader::send(Batch batch) {
    const PurposeScope purpose(Purpose::data);
    if (!copies_) copies_ = kernels_for(options_.device).copy_queue();
    Batch device = batch.map([&](const Tensor& from) {
        Tensor to = Tensor::empty(from.shape(), from.dtype(), options_.device);
        copies_->upload(to.raw(), from.raw(), from.bytes());
        return to;
    });
    ahead_ = Sent{std::move(batch), std::move(device), copies_->ticket()};
}

// The one after it is sent before the work on this one is given to the device, so that it travels meanwhile.
Batch Loader::next_on_device() {
    if (!ahead_) send(take());
    Sent now = std::move(*ahead_);
    ahead_.reset();
    copies_->join(now.ticket);
    Batch batch = std::move(now.device);
    if (pixels_ && batch["x"].dtype() == Dtype::u8) batch.set("x", pixels_->numbers(batch["x"]));
    leaving_.push_back(std::move(now));
    let_go(kLeaving);
    if (can_take()) send(take());
    return batch;
}

void Loader::let_go(std::size_t most) {
    while (!leaving_.empty() && (leaving_.size() > most || copies_->done(leaving_.front().ticket))) {
        copies_->wait(leaving_.front().ticket);
        leaving_.pop_front();
    }
}

// Its memory may be used again at once, but not before the copy has run.
void Loader::drop_what_was_sent() {
    if (!ahead_) return;
    copies_->join(ahead_->ticket);
    leaving_.push_back(std::move(*ahead_));
    ahead_.reset();
    leaving_.back().device = {};
}

Batch Loader::read(const std::vector<std::int64_t>& order, std::int64_t epoch, std::int64_t number) const {
    const PurposeScope purpose(Purpose::data);
    const std::int64_t begin = number * options_.batch_size;
    const std::int64_t whole = std::min(options_.batch_size, std::int64_t(order.size()) - begin);
    const Batch::Part part = part_of(whole);
    const std::int64_t first = begin + part.first;
    std::int64_t count = options_.parts == 1 ? whole : count_of(whole);
    std::vector<std::int64_t> chosen;  // where they are not simply a stretch of the order
    // The last sample is mixed with the first one of the part that follows.
    const bool borrows = options_.mixup > 0 && options_.parts > 1;
    if (borrows) {
        for (std::int64_t i = 0; i <= count; ++i)
            chosen.push_back(order[std::size_t(begin + (part.first + i) % whole)]);
        ++count;
    }
    std::optional<MemoryPool::Scope> scope;
    if (reachable_) scope.emplace(*reachable_);
    Batch batch = dataset_->read_for(
        {epoch, pixels_.has_value()},
        borrows ? std::span<const std::int64_t>(chosen) : std::span(order).subspan(std::size_t(first), std::size_t(count)));
    check(batch.size == count && !batch.tensors().empty(), "{}: asked for {} samples, it gave a batch of {}",
          dataset_->name(), count, batch.tensors().empty() ? "nothing" : std::to_string(batch.size));
    for (const auto& [name, tensor] : batch.tensors())
        check(tensor && tensor.device().is_cpu() && tensor.is_contiguous(),
              "{}: its tensor '{}' must be dense and on the host", dataset_->name(), name);
    if (options_.mixup > 0) mix_pairs(batch, {options_.mixup, dataset_->info().outputs}, options_.seed, epoch, number);
    if (borrows) batch = batch.head(count - 1);
    batch.part = part;
    return batch;
}

// Parts are as equal as can be, the first ones larger. Where there are fewer samples than parts, those behind get the
// first sample, which counts for nothing.
std::int64_t Loader::count_of(std::int64_t whole) const {
    return std::max<std::int64_t>(1, whole / options_.parts + (options_.part < whole % options_.parts));
}

Batch::Part Loader::part_of(std::int64_t whole) const {
    if (options_.parts == 1) return {};
    const std::int64_t each = whole / options_.parts, rest = whole % options_.parts, r = options_.part;
    if (r >= whole) return {0, whole, true};
    return {r * each + std::min(r, rest), whole, false};
}

void Loader::work(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    const auto may_read = [&] {
        const std::int64_t end = another_follows_ ? 2 * batches_ : batches_;
        return order_ && claimed_ < end && claimed_ < taken_ + options_.prefetch;
    };
    while (room_.wait(lock, stop, may_read)) {
        if (stop.stop_requested()) return;  // the wait answers true when there is work, stopped or not
        const std::uint64_t round = round_;
        const bool ahead = claimed_ >= batches_;
        if (ahead && !next_order_) {
            try {
                next_order_ = make_order(epoch_ + 1);
            } catch (const std::bad_alloc&) {  // no room for two of them: the next epoch begins as if it were the first
                another_follows_ = false;
                continue;
            }
        }
        const std::int64_t claimed = claimed_++;
        const std::size_t place = slot(claimed);
        const Order order = ahead ? next_order_ : order_;
        const std::int64_t epoch = epoch_ + ahead, number = ahead ? claimed - batches_ : claimed;
        lock.unlock();
        Read result;
        try {
            result.batch = read(*order, epoch, number);
        } catch (...) {
            result.error = std::current_exception();
        }
        lock.lock();
        if (round == round_) {
            done_[place] = std::move(result);
            ready_.notify_all();
        }
    }
}

}  // namespace invar
