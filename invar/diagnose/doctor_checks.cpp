// What is made of operations that were tried: whether values are within their bounds, whether what is not finite is
// seen, and whether the same call gives the same bits again, after other work and while something else keeps a core
// busy.
#include <fmt/format.h>

#include <limits>
#include <thread>

#include "invar/diagnose/doctor_parts.h"

namespace invar {

namespace {

// Takes a core, so that threads of kernels are held up here and there.
std::jthread busy_thread() {
    return std::jthread([](const std::stop_token& stop) {
        volatile double value = 1;
        while (!stop.stop_requested()) value = value * 0.999 + 0.5;
    });
}

std::vector<TriedOperation> tried_once(const Examined& on) {
    const TryOptions without_exact{.planted = {}, .exact = false};
    std::vector<TriedOperation> all = try_products(on, TrySize::large, without_exact);
    for (TriedOperation& each : try_convolutions(on, TrySize::large, without_exact)) all.push_back(std::move(each));
    return all;
}

using Attempt = std::vector<TriedOperation> (*)(const Examined&, TrySize, const TryOptions&);

ComparedValues compare_all(const Examined& on, Attempt attempt) {
    ComparedValues all;
    for (const TrySize size : {TrySize::small, TrySize::large})
        for (const TriedOperation& each : attempt(on, size, {})) all += compare_values(on, each);
    return all;
}

}  // namespace

ComparedValues check_products(const Examined& on) {
    return compare_all(on, try_products);
}
ComparedValues check_convolutions(const Examined& on) {
    return compare_all(on, try_convolutions);
}

ComparedValues check_non_finite(const Examined& on) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
    using Where = Planted::Where;
    struct Case {
        const char* what;
        Planted planted;
    };
    const Case cases[] = {
        {"NaN in the input", {Where::input, kNan}},       {"Inf in the input", {Where::input, kInf}},
        {"NaN in the weight", {Where::weight, kNan}},     {"-Inf in the weight", {Where::weight, -kInf}},
        {"NaN in the gradient", {Where::gradient, kNan}}, {"-Inf in the gradient", {Where::gradient, -kInf}},
        {"a sum that overflows", {Where::overflow, 0}}};
    ComparedValues all;
    for (const Case& each : cases)
        for (const Attempt attempt : {try_products, try_convolutions})
            for (TriedOperation& tried : attempt(on, TrySize::small, {.planted = each.planted})) {
                tried.operation += fmt::format(", {}", each.what);
                all += compare_non_finite(on, tried);
            }
    return all;
}

ComparedValues check_repeats(const Examined& on) {
    const std::vector<TriedOperation> first = tried_once(on);
    ComparedValues all;
    for (int time = 0; time < 3; ++time) {
        std::vector<TriedOperation> again;
        if (time == 0) {
            again = tried_once(on);
        } else if (time == 1) {
            try_products(on, TrySize::small, {.planted = {}, .exact = false});
            try_convolutions(on, TrySize::small, {.planted = {}, .exact = false});
            again = tried_once(on);
        } else {
            const std::jthread busy = busy_thread();
            again = tried_once(on);
        }
        for (std::size_t i = 0; i < first.size(); ++i) all += compare_bits(first[i], again[i]);
    }
    return all;
}

}  // namespace invar
