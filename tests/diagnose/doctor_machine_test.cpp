// The speed of a machine beside what it should give, measured with kernels that compute nothing.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "invar/core/cpu_use.h"
#include "invar/diagnose/doctor_parts.h"
#include "invar/kernels/stand_in.h"
#include "invar/plan/cards.h"
#include "tests/diagnose/faulty_kernels.h"

namespace invar {
namespace {

class ComputesNothing : public testing::RefusingKernels {
  public:
    std::string description() const override { return "NVIDIA H200, 132 multiprocessors"; }
    void uniform(const View&, double, double, RngState) override {}
    void fill(const View&, double) override {}
    void copy(const View&, const View&) override {}
    void matmul(const View& a, const View&, const View&, const View&, bool) override { multiplied.push_back(a.dtype); }
    std::vector<Dtype> multiplied;
};

DeviceHealth health_of(Device device, const std::vector<std::string>& formats) {
    DeviceHealth health;
    health.device = device;
    for (const std::string& format : formats) {
        FormatHealth& made = health.formats.emplace_back();
        made.format = format;
        made.multiplies = !format.starts_with("f8");
    }
    return health;
}

TEST(DoctorMachine, HoldsACardAgainstItsRow) {
    ComputesNothing kernels;
    const KernelsStandIn in_place(Device::Kind::cuda, kernels);
    DeviceHealth health = health_of(Device::cuda(), {"f32", "tf32", "f16", "bf16", "f8e4m3"});
    measure_speed(health, false);
    const Card card = card_named("h200");
    EXPECT_EQ(health.name, "NVIDIA H200");
    EXPECT_EQ(health.description, "132 multiprocessors");
    EXPECT_EQ(health.formats[0].should_give, card.fp32);
    EXPECT_EQ(health.formats[1].should_give, card.tf32);
    EXPECT_EQ(health.formats[2].should_give, card.fp16);
    EXPECT_EQ(health.formats[3].should_give, card.bf16);
    EXPECT_EQ(health.formats[4].should_give, 0) << "nothing multiplies in FP8";
    EXPECT_TRUE(kernels.multiplied.empty()) << "nobody asked for times";
}

TEST(DoctorMachine, MeasuresEachFormatThatMultiplies) {
    ComputesNothing kernels;
    const KernelsStandIn in_place(Device::Kind::cpu, kernels);
    DeviceHealth health = health_of(Device::cpu(), {"f32", "f16", "f8e5m2"});
    health.formats[1].deadly = "it dies";
    measure_speed(health, true);
    EXPECT_GT(health.formats[0].flops_per_s, 0);
    EXPECT_EQ(health.formats[1].flops_per_s, 0) << "it would end the program";
    EXPECT_EQ(health.formats[2].flops_per_s, 0) << "nothing multiplies in FP8";
    EXPECT_GT(health.copy_per_s, 0);
    for (const Dtype dtype : kernels.multiplied) EXPECT_EQ(dtype, Dtype::f32);
}

// Another process that never rests, on the one processor that this thread has for as long.
class Rival {
  public:
    Rival() {
        CPU_ZERO(&before_);
        one_ = ::sched_getaffinity(0, sizeof(before_), &before_) == 0;
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(::sched_getcpu(), &here);
        one_ = one_ && ::sched_setaffinity(0, sizeof(here), &here) == 0;
        child_ = ::fork();
        if (child_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned i = 0;;) i = i + 1;
    }
    ~Rival() {
        if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
        if (one_) ::sched_setaffinity(0, sizeof(before_), &before_);
    }
    Rival(const Rival&) = delete;
    Rival& operator=(const Rival&) = delete;
    bool there() const { return one_ && child_ > 0; }

  private:
    cpu_set_t before_;
    bool one_ = false;
    pid_t child_ = -1;
};

// Multiplies until others have kept it waiting for a third of its time, and gives up where nobody does.
class IsKeptWaiting final : public ComputesNothing {
  public:
    void matmul(const View&, const View&, const View&, const View&, bool) override {
        constexpr double kMost = 5.0;  // seconds of computing
        while (!waited) {
            for (volatile int i = 0; i < 100000;) i = i + 1;
            const CpuUse used = cpu_use() - before_;
            waited = used.ran > 0.02 && used.waited_share() > 0.34;
            if (used.ran > kMost) return;
        }
    }
    bool waited = false;

  private:
    CpuUse before_ = cpu_use();
};

TEST(DoctorMachine, SaysThatTimesAreWorthNothingWhereOthersKeepItWaiting) {
    const Rival rival;
    if (!rival.there() || cpu_use().ran == 0) GTEST_SKIP() << "this system does not tell";
    IsKeptWaiting kernels;
    const KernelsStandIn in_place(Device::Kind::cpu, kernels);
    DeviceHealth health = health_of(Device::cpu(), {"f32"});
    measure_speed(health, true);
    if (!kernels.waited) GTEST_SKIP() << "this system has a processor for each";
    EXPECT_TRUE(health.disturbed.starts_with("other work on this machine kept the threads of this program waiting for"))
        << health.disturbed;
}

}  // namespace
}  // namespace invar
