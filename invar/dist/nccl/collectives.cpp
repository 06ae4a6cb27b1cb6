// DeviceCollectives over NCCL. Exchanges run one after the other on a stream of their own, tied to the computations by
// events: in eager steps and in recorded ones alike. NCCL's own sums go round in an order of its choosing, so that
// pieces are sent as they are and added up here.
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/dist/communicator.h"
#include "invar/dist/device_collectives.h"
#include "invar/dist/nccl/api.h"
#include "invar/dist/nccl/kernels.h"
#include "invar/dist/rank_sum.h"
#include "invar/kernels/cuda/device.h"

namespace invar::nccl {

namespace {

using Clock = std::chrono::steady_clock;

class NcclCollectives final : public DeviceCollectives {
  public:
    explicit NcclCollectives(Communicator& ranks) : api_(api()), rank_(ranks.rank()), size_(ranks.size()) {
        invar::check(size_ <= FindingKey::kMaxRanks, "{} ranks are more than can be told of", size_);
        struct Opening {
            ncclUniqueId id{};
            ncclResult_t result = ncclSuccess;
        } opening;
        if (ranks.leads()) opening.result = api_.get_unique_id(&opening.id);
        ranks.broadcast(&opening, sizeof opening);
        api_.check(opening.result, "ncclGetUniqueId on rank 0");
        int least = 0, greatest = 0;
        INVAR_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        INVAR_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
        INVAR_CUDA_CHECK(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming));
        for (cudaEvent_t& event : done_) INVAR_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        void* marks = nullptr;
        INVAR_CUDA_CHECK(cudaHostAlloc(&marks, sizeof(Marks), cudaHostAllocPortable | cudaHostAllocMapped));
        marks_ = new (marks) Marks;
        const PurposeScope purpose(Purpose::workspace);
        findings_ = Tensor::empty({std::int64_t(sizeof(RankFindings)) * (size_ + 1)}, Dtype::u8, Device::cuda());
        api_.check(api_.comm_init_rank(&comm_, size_, opening.id, rank_), "ncclCommInitRank");
    }
    ~NcclCollectives() override {
        if (aborted_) return;
        cudaStreamSynchronize(stream_);
        api_.comm_destroy(comm_);
        for (const cudaEvent_t event : done_) cudaEventDestroy(event);
        cudaEventDestroy(reached_);
        cudaStreamDestroy(stream_);
        cudaFreeHost(marks_);
    }

    std::string name() const override { return "NCCL " + api_.version(); }

    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, const Finding& finding) override {
        follow();
        const std::int64_t count = share.numel();
        const bool bf16 = wire == Dtype::bf16;
        const ExchangeRoom needed(count, size_, wire);
        const std::size_t bytes = needed.piece;
        std::byte* const room = staging(needed.total());
        const auto* const own = static_cast<const float*>(whole.raw());
        const auto* from = static_cast<const std::byte*>(whole.raw());
        if (bf16) {
            round_to_bf16(own, reinterpret_cast<std::uint16_t*>(room), whole.numel(), stream_);
            from = room;
        }
        mark_entered(marks_, stream_);
        api_.check(api_.group_start(), "ncclGroupStart");
        for (int r = 0; r < size_; ++r) {
            if (r == rank_) continue;
            const std::size_t slot = std::size_t(r < rank_ ? r : r - 1);
            api_.check(api_.send(from + std::size_t(r) * bytes, bytes, ncclInt8, r, comm_, stream_), "ncclSend");
            api_.check(api_.recv(room + needed.sent + slot * bytes, bytes, ncclInt8, r, comm_, stream_), "ncclRecv");
        }
        api_.check(api_.group_end(), "the exchange of gradients");
        RankSum sum;
        sum.own = own + rank_ * count;
        sum.others = room + needed.sent;
        sum.share = static_cast<float*>(share.raw());
        sum.count = count;
        sum.rank = rank_, sum.ranks = size_;
        sum.bf16 = bf16;
        sum.key = finding.key, sum.place = finding.place, sum.round = finding.round;
        sum.marks = marks_;
        sum_in_rank_order(sum, stream_);
        return issue({whole, share});
    }

    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        follow();
        mark_entered(marks_, stream_);
        api_.check(api_.all_gather(share.raw(), whole.raw(), share.bytes(), ncclInt8, comm_, stream_), "ncclAllGather");
        mark_left(marks_, stream_);
        return issue({share, whole});
    }

    void wait(Ticket ticket) override {
        check_whole();
        if (ticket <= waited_) return;
        INVAR_CUDA_CHECK(cudaStreamWaitEvent(cuda::stream(), event_of(ticket), 0));
        waited_ = ticket;
        while (!held_.empty() && held_.front().ticket <= ticket) held_.pop_front();
    }

    void agree(const Agreement& step) override {
        auto* const findings = static_cast<RankFindings*>(findings_.raw());
        constexpr auto kBytes = std::int64_t(sizeof(RankFindings));
        tell_findings(step.state, step.loss, step.key, step.pieces, step.count, findings, cuda::stream());
        wait(all_gather(findings_.window(0, {kBytes}), findings_.window(kBytes, {kBytes * size_})));
        nccl::agree(findings + 1, size_, step.state, step.whole_loss, cuda::stream());
        cuda::check_call(cudaGetLastError(), "the agreement on a step");
    }

    void check() override {
        if (aborted_) return;
        ncclResult_t state = ncclSuccess;
        api_.check(api_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError");
        api_.check(state, "a rank is lost, or the way to it");
    }

    double waiting() override {
        const volatile Marks& marks = *marks_;
        const Marks now{marks.entered, marks.left};
        const bool inside = now.entered != now.left;
        if (!inside || now.entered != seen_.entered || now.left != seen_.left) since_ = Clock::now();
        seen_ = now;
        return inside ? std::chrono::duration<double>(Clock::now() - since_).count() : 0.0;
    }

    // What the device waits for ends at once, but the call itself only when no recording holds the communicator any
    // more: nobody waits for that.
    void give_up() noexcept override {
        if (aborted_.exchange(true)) return;
        try {
            std::thread([end = api_.comm_abort, comm = comm_] { end(comm); }).detach();
        } catch (const std::system_error&) {  // no thread is to be had, and the process ends with the device as it is
        }
    }

  private:
    // What travels is held until the computations have waited for it: then its memory may be used for others.
    struct Held {
        Ticket ticket;
        std::array<Tensor, 2> tensors;
    };

    void check_whole() const {
        if (aborted_) throw RankError("the exchange between GPUs was given up");
    }

    // Exchanges come after all that was computed so far.
    void follow() {
        check_whole();
        if (cuda::capturing()) {
            recorded_ = true;
            // Of a recording that fails nothing will ever be done.
            if (HostSide* const side = HostSide::current())
                side->undo([this] {
                    waited_ = issued_;
                    held_.clear();
                });
        }
        INVAR_CUDA_CHECK(cudaEventRecord(reached_, cuda::stream()));
        INVAR_CUDA_CHECK(cudaStreamWaitEvent(stream_, reached_, 0));
    }

    Ticket issue(std::array<Tensor, 2> tensors) {
        cuda::check_call(cudaGetLastError(), "an exchange between ranks");
        held_.push_back({++issued_, std::move(tensors)});
        INVAR_CUDA_CHECK(cudaEventRecord(event_of(issued_), stream_));
        return issued_;
    }
    // One that was used again stands for later exchanges, and so for the earlier ones too.
    cudaEvent_t event_of(Ticket ticket) const { return done_[ticket % done_.size()]; }

    // Memory of this stream alone: exchanges use it in turn. Recordings go on using what they were made with.
    std::byte* staging(std::size_t bytes) {
        if (!staging_ || staging_->bytes() < bytes) {
            if (recorded_)
                outgrown_.push_back(std::move(staging_));
            else
                INVAR_CUDA_CHECK(cudaStreamSynchronize(stream_));
            staging_.reset();
            staging_ = std::make_unique<Storage>(bytes, Device::cuda(), Purpose::workspace);
            // What was freed may still be used by computations that are not done.
            INVAR_CUDA_CHECK(cudaEventRecord(reached_, cuda::stream()));
            INVAR_CUDA_CHECK(cudaStreamWaitEvent(stream_, reached_, 0));
        }
        return static_cast<std::byte*>(staging_->data());
    }

    const Api& api_;
    const int rank_, size_;
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t reached_ = nullptr;
    std::array<cudaEvent_t, 32> done_{};
    Ticket issued_ = 0, waited_ = 0;
    std::deque<Held> held_;
    std::unique_ptr<Storage> staging_;
    std::vector<std::unique_ptr<Storage>> outgrown_;
    bool recorded_ = false;
    Tensor findings_;  // this rank's, then all
    Marks* marks_ = nullptr;
    Marks seen_;
    Clock::time_point since_;
    std::atomic<bool> aborted_ = false;
};

template <class Work>
bool without_throwing(std::string& why, Work&& work) {
    try {
        work();
        return true;
    } catch (const std::exception& error) {
        why = error.what();
        return false;
    }
}

}  // namespace

}  // namespace invar::nccl

extern "C" __attribute__((visibility("default"))) bool invar_nccl_open(std::string& card, std::string& why) {
    return invar::nccl::without_throwing(why, [&] {
        (void)invar::nccl::api();
        char bus[32] = {};
        INVAR_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
        card = bus;
    });
}

extern "C" __attribute__((visibility("default"))) invar::DeviceCollectives* invar_nccl_join(invar::Communicator& ranks,
                                                                                            std::string& why) {
    invar::DeviceCollectives* joined = nullptr;
    invar::nccl::without_throwing(why, [&] { joined = new invar::nccl::NcclCollectives(ranks); });
    return joined;
}
