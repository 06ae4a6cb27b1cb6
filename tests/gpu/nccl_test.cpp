// Ranks whose GPUs exchange by themselves: two processes under mpirun that share the one card, with a stand-in for
// libnccl (tests/dist/nccl_stand_in.cu). The tests of GpuNccl start this program again as two ranks, which run those of
// NcclRanks.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "invar/core/error.h"
#include "invar/core/formats.h"
#include "invar/dist/communicator.h"
#include "invar/dist/device_collectives.h"
#include "invar/models/resnet.h"
#include "invar/ops/ops.h"
#include "invar/train/recorded_step.h"
#include "invar/train/step.h"
#include "tests/dist/low_sum.h"
#include "tests/gpu/fixture.h"
#include "tests/train/scratch_run.h"

namespace invar::testing {
namespace {

namespace fs = std::filesystem;
using TrainedRun = invar::Setup;  // inside a test, Setup is a member of its fixture

constexpr const char *kMode = "INVAR_TEST_NCCL", *kFolder = "INVAR_TEST_NCCL_FOLDER";
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// --- what one of the ranks does ---

class NcclRanks : public Gpu {
  protected:
    void SetUp() override {
        if (variable(kMode).empty()) GTEST_SKIP() << "run by the tests of GpuNccl, under mpirun";
        Gpu::SetUp();
        if (variable(kMode) == "lost") set_rank_timeout(2);
    }
    static void TearDownTestSuite() { leave_world(); }
    static Communicator& joined() {
        Communicator& ranks = world();
        ranks.prepare(Device::cuda());
        return ranks;
    }
    // What the ranks leave for the test that started them.
    static void leave_lines(int rank, const std::vector<std::string>& lines) {
        std::ofstream file(fs::path(variable(kFolder)) / fmt::format("{}.{}", variable(kMode), rank));
        for (const std::string& line : lines) file << line << '\n';
    }
};

// What rank r has at place i: no two sums in another order are the same.
float value_at(int rank, std::int64_t i, int salt = 0) {
    return float(std::sin(double(i) * 0.731 + rank * 1.9 + salt) * std::pow(10.0, (rank * 4 + i) % 7 - 3));
}

Tensor values_of(int rank, std::int64_t count, int salt = 0) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[std::size_t(i)] = value_at(rank, i, salt);
    return on_gpu(Tensor::from<float>(values, {count}));
}

std::vector<float> sums_by_hand(int size, std::int64_t first, std::int64_t count, Dtype wire, int salt = 0) {
    const auto part = [&](int rank, std::int64_t at) {
        const float value = value_at(rank, at, salt);
        return wire == Dtype::bf16 ? float(bf16(value)) : value;
    };
    std::vector<float> sums(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        sums[std::size_t(i)] = part(0, first + i);
        for (int r = 1; r < size; ++r) sums[std::size_t(i)] += part(r, first + i);
    }
    return sums;
}

// The first places where two differ, rather than all of them.
void expect_equal(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    int told = 0;
    for (std::size_t i = 0; i < got.size() && told < 3; ++i) {
        if (got[i] == expected[i]) continue;
        ADD_FAILURE() << what << ": " << got[i] << " at " << i << " of " << got.size() << ", expected " << expected[i];
        ++told;
    }
}

TEST_F(NcclRanks, AreJoinedByTheLibraryThatWasAskedFor) {
    Communicator& ranks = joined();
    const bool by_host = variable("INVAR_NCCL_LIBRARY") == "none";
    std::printf("rank %d: %s\n", ranks.rank(), ranks.name().c_str());
    EXPECT_EQ(ranks.size(), 2);
    EXPECT_EQ(ranks.device_collectives(Device::cuda()) == nullptr, by_host);
    EXPECT_EQ(ranks.device_collectives(Device::cpu()), nullptr);
    EXPECT_NE(ranks.name().find(by_host ? "tensors of GPUs by way of the host: rank 0 is without NCCL, "
                                          "INVAR_NCCL_LIBRARY is none"
                                        : ", NCCL 0.0.1"),
              std::string::npos)
        << ranks.name();
}

TEST_F(NcclRanks, SumInRankOrder) {
    Communicator& ranks = joined();
    for (const Dtype wire : {Dtype::f32, Dtype::bf16}) {
        // The last ones are more than goes at once.
        for (const std::int64_t piece : {1, 37, 4096, 700001}) {
            const std::string what = fmt::format("pieces of {} as {}", piece, name_of(wire));
            const std::int64_t first = ranks.rank() * piece, count = piece * ranks.size();
            const Tensor whole = values_of(ranks.rank(), count);
            const Tensor share = Tensor::empty({piece}, Dtype::f32, Device::cuda());
            ranks.wait(ranks.reduce_scatter(whole, share, wire));
            expect_equal(share.to_vector<float>(), sums_by_hand(ranks.size(), first, piece, wire), what);
            // In place as well: everybody then has all sums.
            const Tensor mine = whole.window(first, {piece});
            const Communicator::Ticket reduced = ranks.reduce_scatter(whole, mine, wire);
            ranks.wait(ranks.all_gather(mine, whole));
            ranks.wait(reduced);
            expect_equal(whole.to_vector<float>(), sums_by_hand(ranks.size(), 0, count, wire), what + ", in place");
        }
    }
}

TEST_F(NcclRanks, GoOnBesideWhatIsComputed) {
    Communicator& ranks = joined();
    constexpr std::int64_t kPiece = 5000;
    constexpr int kMany = 70;  // more than there are events
    std::vector<Tensor> shares;
    std::vector<Communicator::Ticket> tickets;
    for (int i = 0; i < kMany; ++i) {
        const Tensor whole = values_of(ranks.rank(), kPiece * 2, i);  // nobody else holds it
        shares.push_back(Tensor::empty({kPiece}, Dtype::f32, Device::cuda()));
        tickets.push_back(ranks.reduce_scatter(whole, shares.back()));
        const Tensor other = Tensor::empty({kPiece * 2}, Dtype::f32, Device::cuda());
        kernels_for(Device::cuda()).fill(other.view(), 1e30);  // in its memory, were it free
    }
    for (std::size_t i = tickets.size(); i-- > 0;) {
        ranks.wait(tickets[i]);
        expect_equal(shares[i].to_vector<float>(), sums_by_hand(2, ranks.rank() * kPiece, kPiece, Dtype::f32, int(i)),
                     fmt::format("number {}", i));
    }
}

TEST_F(NcclRanks, SayWhoseValueWasTheFirstThatIsNotFinite) {
    Communicator& ranks = joined();
    for (const Dtype wire : {Dtype::f32, Dtype::bf16}) {
        constexpr std::int64_t kPiece = 3000;
        Tensor host = values_of(ranks.rank(), kPiece * 2).on_host();
        float* const values = host.data<float>();
        values[kPiece + 2000] = 3e38f;  // finite on both, and their sum is not
        if (ranks.rank() == 1) values[kPiece + 2500] = kInf, values[kPiece + 1700] = std::nanf("");
        const Tensor share = Tensor::empty({kPiece}, Dtype::f32, Device::cuda());
        ReduceFinding found;
        ranks.wait(ranks.reduce_scatter(on_gpu(host), share, wire, &found));
        EXPECT_EQ(found.place, ranks.rank() == 1 ? 1700 : -1);
        EXPECT_EQ(found.rank, ranks.rank() == 1 ? 1 : -1);
        values[kPiece + 1700] = 1.0f;
        ranks.wait(ranks.reduce_scatter(on_gpu(host), share, wire, &found));
        EXPECT_EQ(found.place, ranks.rank() == 1 ? 2000 : -1);
        EXPECT_EQ(found.rank, -1);
    }
}

TEST_F(NcclRanks, AreRecordedAndReplayed) {
    Communicator& ranks = joined();
    constexpr std::int64_t kPiece = 300000;
    const Tensor whole = values_of(ranks.rank(), kPiece * 2);
    const Tensor share = Tensor::empty({kPiece}, Dtype::f32, Device::cuda());
    const Tensor all = Tensor::empty({kPiece * 2}, Dtype::f32, Device::cuda());
    Kernels& device = kernels_for(Device::cuda());
    const auto work = [&] {
        ranks.wait(ranks.reduce_scatter(whole, share));
        ranks.wait(ranks.all_gather(share, all));
    };
    work();
    const MemoryPool pool(Device::cuda());
    const std::unique_ptr<Recording> recording = device.record(pool, work);
    std::printf("rank %d: %lld parts recorded\n", ranks.rank(), static_cast<long long>(recording->parts()));
    expect_equal(all.to_vector<float>(), sums_by_hand(2, 0, kPiece * 2, Dtype::f32), "recorded");
    for (int salt = 1; salt < 6; ++salt) {
        const Tensor next = values_of(ranks.rank(), kPiece * 2, salt);
        device.copy(next.view(), whole.view());
        recording->replay();
        if (salt == 3) work();  // an eager one in between
        expect_equal(all.to_vector<float>(), sums_by_hand(2, 0, kPiece * 2, Dtype::f32, salt),
                     fmt::format("replay {}", salt));
    }
}

std::uint64_t hash_of(const std::string& bytes) {
    std::uint64_t hash = 14695981039346656037u;
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
    return hash;
}

Config config_for(const std::string& strategy, const std::string& precision, std::int64_t accumulate) {
    Config config = small_config("/nowhere");
    config.trainer.device = "cuda";
    config.trainer.strategy = strategy;
    config.trainer.precision = precision;
    config.trainer.accumulate_grad_batches = accumulate;
    config.trainer.gradient_clip_val = 0.5;
    config.trainer.bucket_mb = 0.005;  // several buckets
    config.trainer.reduce_precision = precision == "bf16-mixed" ? "bf16" : config.trainer.reduce_precision;
    config.model.choose("mlp", MlpOptions{.hidden = {64, 32}, .dropout = 0.25});
    config.data.num_workers = 0;
    config.scaler.init_scale = 0x1p30;  // overflows at first, in eager steps and in recorded ones
    config.scaler.growth_interval = 3;
    return config;
}

// A line a step, and one for each tensor of the end. Rank 1 has gradients of NaN at step 1, rank 0 a loss of NaN at
// step 2.
std::vector<std::string> train_lines(const Config& config, bool recorded) {
    constexpr int kSteps = 26;
    const std::string what = fmt::format("{} {} x{}", config.trainer.strategy, config.trainer.precision,
                                         config.trainer.accumulate_grad_batches);
    TrainedRun setup(config);
    setup.model->train();
    std::string note;
    int number = 0;
    const int rank = setup.ranks->rank();
    const LossFunction good = setup.loss;
    setup.loss = [&](Module& model, const Batch& batch) {
        const Tensor loss = good(model, batch);
        if (number == 1 && rank == 1)
            return loss + ops::sqrt(low_sum(setup.optimizer->store().parameters()[2]->value) * 0.0);
        if (number == 2 && rank == 0) return loss * std::numeric_limits<double>::quiet_NaN();
        return loss;
    };
    RecordedStep step(setup.device, step_function(setup), {recorded, [&](const std::string& text) { note = text; }});
    std::vector<std::string> lines;
    std::int64_t epoch = 0, replayed = 0;
    setup.train_data->start_epoch(epoch);
    for (; number < kSteps; ++number) {
        std::vector<Batch> group = setup.next_group();
        if (group.empty()) {
            setup.train_data->start_epoch(++epoch);
            group = setup.next_group();
        }
        const double loss = step(group).item();
        replayed += step.parts() > 0;
        const StepState state = setup.optimizer->state();
        lines.push_back(
            fmt::format("{} step {}: loss {:a}, norm {:a}, scale {:a}; skip {}, taken {}, nonfinite {}, "
                        "first {}, of rank {}",
                        what, number, std::isnan(loss) ? 0.0 : loss,
                        std::isfinite(state.grad_norm) ? state.grad_norm : -1.0f, setup.scaler->get_scale(), state.skip,
                        state.taken, state.nonfinite, state.first_nonfinite, state.bad_rank));
    }
    EXPECT_EQ(note, "") << what;
    EXPECT_EQ(replayed > kSteps / 3, recorded) << what << ": " << replayed << " steps were recorded or replayed";
    for (const auto& [name, tensor] : setup.model->state_dict())
        lines.push_back(fmt::format("{} {}: {:016x}", what, name, hash_of(bytes_of(tensor))));
    for (const auto& [name, tensor] : setup.optimizer->state_dict())
        lines.push_back(fmt::format("{} {}: {:016x}", what, name, hash_of(bytes_of(tensor))));
    return lines;
}

TEST_F(NcclRanks, Train) {
    Communicator& ranks = joined();
    std::vector<std::string> lines;
    for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"})
        for (const std::int64_t accumulate : {1, 2})
            for (const char* strategy : {"ddp", "zero1", "zero2"}) {
                const auto some =
                    train_lines(config_for(strategy, precision, accumulate), variable(kMode) == "recorded");
                lines.insert(lines.end(), some.begin(), some.end());
            }
    for (const char* precision : {"32-true", "16-mixed"}) {  // the sums of its norms travel, and are recorded, too
        Config config = config_for("zero1", precision, 1);
        config.model.choose("resnet", ResNetOptions{.layers = 18, .stem = "cifar", .width = 4});
        config.data.choose("synthetic",
                           SyntheticOptions{.size = 150, .height = 16, .width = 16, .channels = 2, .classes = 4});
        config.trainer.sync_batchnorm = true;
        const auto some = train_lines(config, variable(kMode) == "recorded");
        lines.insert(lines.end(), some.begin(), some.end());
    }
    leave_lines(ranks.rank(), lines);
}

// Rank 1 stops in the middle of an exchange; rank 0, which waits for its card, is told, and ends both.
TEST_F(NcclRanks, NoticeOneThatStops) {
    Communicator& ranks = joined();
    const std::vector<pid_t> processes = ranks.gathered(::getpid());
    const Tensor whole = values_of(ranks.rank(), 2000), share = Tensor::empty({1000}, Dtype::f32, Device::cuda());
    ranks.wait(ranks.reduce_scatter(whole, share));
    synchronize(Device::cuda());
    ranks.barrier();
    if (ranks.rank() == 1) ::raise(SIGSTOP);
    std::string told = "nothing";
    try {
        ranks.wait(ranks.reduce_scatter(whole, share));
        synchronize(Device::cuda());
        ranks.barrier();
    } catch (const RankError& error) {
        told = error.what();
    } catch (const Error& error) {
        told = std::string("not a RankError: ") + error.what();
    }
    leave_lines(ranks.rank(), {told});
    ::kill(processes[1], SIGKILL);
    ::_exit(0);
}

// --- those who start them ---

class GpuNccl : public Gpu {
  protected:
    void SetUp() override {
        Gpu::SetUp();
        if (IsSkipped()) return;
        if (!variable(kMode).empty()) GTEST_SKIP() << "this is one of the ranks";
        const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
        for (const fs::path& folder : {here, here / "../lib", fs::path(INVAR_BINARY_DIR) / "lib"})
            if (stand_in_.empty() && fs::exists(folder / "libnccl_stand_in.so"))
                stand_in_ = folder / "libnccl_stand_in.so";
        if (stand_in_.empty()) GTEST_SKIP() << "no libnccl_stand_in.so beside this program: built without nccl.h";
        for (const char* name : {"mpirun.openmpi", "mpirun"}) {
            const Result version = run(fmt::format("{} --version", name));
            if (mpirun_.empty() && version.output.find("Open MPI") != std::string::npos) mpirun_ = name;
        }
        if (mpirun_.empty()) GTEST_SKIP() << "no mpirun of Open MPI on this machine";
    }
    struct Result {
        int code;
        std::string output;
    };
    static Result run(const std::string& command) {
        Result result{-1, ""};
        std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
        if (pipe == nullptr) return result;
        std::array<char, 4096> piece;
        while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), pipe))
            result.output.append(piece.data(), got);
        const int status = ::pclose(pipe);
        result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return result;
    }
    // These tests of NcclRanks as two ranks; what they say is printed.
    Result as_ranks(const std::string& tests, const std::string& mode, const std::string& library) const {
        const std::string command = fmt::format(
            "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX -u GTEST_SHARD_STATUS_FILE "  // of the one that starts them
            "{}={} {}='{}' INVAR_NCCL_LIBRARY='{}' NCCL_DEBUG=INFO OMPI_ALLOW_RUN_AS_ROOT=1 "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated OMPI_MCA_rmaps_base_oversubscribe=1 "
            "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
            "OMPI_MCA_hwloc_base_binding_policy=none timeout -k 5 240 {} --tag-output -n 2 '{}' --gtest_color=no "
            "--gtest_filter='{}'",
            kMode, mode, kFolder, scratch_.path().string(), library, mpirun_,
            fs::read_symlink("/proc/self/exe").string(), tests);
        const Result result = run(command);
        std::printf("--- %s, exit %d\n%s---\n", command.c_str(), result.code, result.output.c_str());
        return result;
    }
    std::vector<std::string> lines_of(const std::string& mode, int rank) const {
        std::vector<std::string> lines;
        std::ifstream file(scratch_.path() / fmt::format("{}.{}", mode, rank));
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        return lines;
    }
    ScratchFolder scratch_;
    fs::path stand_in_;
    std::string mpirun_;
};

TEST_F(GpuNccl, ExchangesTensorsToTheBit) {
    const Result result = as_ranks("NcclRanks.*-*Train*:*Stops*", "eager", stand_in_.string());
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.output.find("[  PASSED  ] 5 tests."), std::string::npos) << "all ran, none was skipped";
}

TEST_F(GpuNccl, TrainsAsByWayOfTheHost) {
    const std::string tests = "NcclRanks.AreJoined*:NcclRanks.Train";
    ASSERT_EQ(as_ranks(tests, "host", "none").code, 0);
    const std::vector<std::string> expected = lines_of("host", 0);
    ASSERT_GT(expected.size(), 400u);
    for (const char* mode : {"eager", "recorded"}) {
        EXPECT_EQ(as_ranks(tests, mode, stand_in_.string()).code, 0) << mode;
        for (const int rank : {0, 1}) {
            const std::vector<std::string> got = lines_of(mode, rank);
            EXPECT_EQ(got.size(), expected.size()) << mode << " on rank " << rank;
            int told = 0;
            for (std::size_t i = 0; i < std::min(got.size(), expected.size()) && told < 10; ++i) {
                if (got[i] == expected[i]) continue;
                ADD_FAILURE() << mode << " on rank " << rank << ":\n"
                              << got[i] << "\nby way of the host:\n"
                              << expected[i];
                ++told;
            }
        }
    }
}

TEST_F(GpuNccl, NoticesARankThatStops) {
    as_ranks("NcclRanks.NoticeOneThatStops", "lost", stand_in_.string());
    const std::vector<std::string> told = lines_of("lost", 0);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_NE(told[0].find("rank 1 gives no answer"), std::string::npos) << told[0];
}

}  // namespace
}  // namespace invar::testing
