// What ranks find out together: clocks, and whether sums and pieces arrive as they should, and how fast.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "invar/diagnose/preflight_parts.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What rank r puts at place i: small whole numbers, whose sums FP32 holds exactly.
float put(int rank, std::int64_t i) {
    return float((rank % 8 + 1) * (i % 97 + 1));
}

Tensor on_device(const std::vector<float>& values, Device device) {
    const Tensor host = Tensor::from(values, {std::int64_t(values.size())});
    if (device.is_cpu()) return host;
    const Tensor result = Tensor::empty(host.shape(), Dtype::f32, device);
    kernels_for(device).upload(result.raw(), host.raw(), host.bytes());
    return result;
}

// The slowest rank's.
double slowest(Communicator& ranks, double seconds) {
    return std::ranges::max(ranks.gathered(seconds));
}

struct Tried {
    double seconds = 0;
    std::string wrong;  // what this rank found; "" where all is as it should be
};

template <class Expected>
std::string compare(const char* what, const Tensor& got, const Expected& expected) {
    const std::vector<float> values = got.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] != expected(std::int64_t(i)))
            return fmt::format("{} gave {} in place {} and not {}", what, values[i], i, expected(std::int64_t(i)));
    return "";
}

Tried try_reduce_scatter(Communicator& ranks, Device device, std::int64_t each) {
    std::vector<float> values(std::size_t(each * ranks.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = put(ranks.rank(), std::int64_t(i));
    const Tensor whole = on_device(values, device), share = Tensor::empty({each}, Dtype::f32, device);
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    ranks.wait(ranks.reduce_scatter(whole, share));
    const double seconds = seconds_since(begin);
    const auto sum = [&](std::int64_t i) {
        float expected = 0;
        for (int r = 0; r < ranks.size(); ++r) expected += put(r, each * ranks.rank() + i);
        return expected;
    };
    return {slowest(ranks, seconds), compare("a sum over the ranks", share, sum)};
}

Tried try_all_gather(Communicator& ranks, Device device, std::int64_t each) {
    std::vector<float> values(static_cast<std::size_t>(each));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = put(ranks.rank(), std::int64_t(i));
    const Tensor share = on_device(values, device), whole = Tensor::empty({each * ranks.size()}, Dtype::f32, device);
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    ranks.wait(ranks.all_gather(share, whole));
    const double seconds = seconds_since(begin);
    return {slowest(ranks, seconds),
            compare("pieces handed round", whole, [&](std::int64_t i) { return put(int(i / each), i % each); })};
}

}  // namespace

std::vector<double> clock_offsets(Communicator& ranks, const std::function<double()>& clock, double& error) {
    constexpr int kTrips = 10;
    std::vector<double> offsets;
    error = std::numeric_limits<double>::infinity();
    for (int trip = 0; trip < kTrips; ++trip) {
        ranks.barrier();  // from here they are together, but for the way of a message
        const Clock::time_point begin = Clock::now();
        const std::vector<double> clocks = ranks.gathered(clock());
        double length = seconds_since(begin);
        ranks.broadcast(&length, sizeof length);
        if (length >= error) continue;
        error = length;
        offsets.clear();
        for (const double each : clocks) offsets.push_back(each - clocks[0]);
    }
    return offsets;
}

std::vector<ExchangeSpeed> try_exchange(Communicator& ranks, Device device, std::vector<Problem>& problems) {
    constexpr int kTimes = 3;
    constexpr double kLong = 3;  // seconds: nothing larger is tried
    std::vector<ExchangeSpeed> speeds;
    std::string wrong;
    for (const std::int64_t wanted : {std::int64_t(64) << 10, std::int64_t(1) << 20, std::int64_t(16) << 20}) {
        const std::int64_t each = std::max<std::int64_t>(1, wanted / 4 / ranks.size());
        const Clock::time_point begin = Clock::now();
        double reduced = std::numeric_limits<double>::infinity(), gathered = reduced;
        for (int i = 0; i < kTimes; ++i) {
            const Tried sum = try_reduce_scatter(ranks, device, each), pieces = try_all_gather(ranks, device, each);
            reduced = std::min(reduced, sum.seconds);
            gathered = std::min(gathered, pieces.seconds);
            for (const Tried& tried : {sum, pieces})
                if (wrong.empty()) wrong = tried.wrong;
        }
        const double sent = 4.0 * double(each) * (ranks.size() - 1);
        speeds.push_back({4 * each * ranks.size(), sent / reduced, sent / gathered});
        if (slowest(ranks, seconds_since(begin)) > kLong) break;
    }
    const std::vector<std::string> all = ranks.gathered(wrong);
    for (std::size_t r = 0; r < all.size(); ++r)
        if (!all[r].empty()) problems.push_back({int(r), Mark::fail, "exchange", all[r]});
    return speeds;
}

}  // namespace invar
