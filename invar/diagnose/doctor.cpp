#include "invar/diagnose/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/memory.h"
#include "invar/diagnose/doctor_parts.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

struct ExaminedFormat {
    const char* name;
    Dtype dtype;
    bool tf32 = false, multiplies = true;
};

constexpr ExaminedFormat kFormats[] = {{"f32", Dtype::f32},
                                       {"tf32", Dtype::f32, true},
                                       {"f16", Dtype::f16},
                                       {"bf16", Dtype::bf16},
                                       {"f8e4m3", Dtype::f8e4m3, false, false},
                                       {"f8e5m2", Dtype::f8e5m2, false, false}};

// What ends the process cannot be looked at from inside it.
std::string why_deadly(const Examined& on, const DoctorOptions& options) {
    if (!on.device.is_cpu() || !options.try_aside) return "";
    return options.try_aside([&] {
        try_products(on, TrySize::small, {.planted = {}, .exact = false});
        try_convolutions(on, TrySize::small, {.planted = {}, .exact = false});
    });
}

}  // namespace

std::vector<FormatHealth::Check> FormatHealth::checks() const {
    std::vector<Check> made;
    for (const Check& each : {Check{"conversions", conversions},
                              {"products", products},
                              {"convolutions", convolutions},
                              {"non_finite", non_finite},
                              {"repeats", repeats}})
        if (each.values.values > 0 || !each.values.problem.empty()) made.push_back(each);
    return made;
}

bool FormatHealth::ok() const {
    return deadly.empty() && std::ranges::all_of(checks(), [](const Check& check) { return check.values.ok(); });
}

bool DeviceHealth::ok() const {
    return memory.ok() && std::ranges::all_of(formats, [](const FormatHealth& format) { return format.ok(); });
}

DeviceHealth examine(Device device, const DoctorOptions& options) {
    const auto tell = [&](const std::string& what) {
        if (options.progress) options.progress(fmt::format("{} {}", device.str(), what));
    };
    DeviceHealth health;
    health.device = device;
    for (const ExaminedFormat& format : kFormats) {
        if (format.tf32 && device.is_cpu()) continue;
        const Examined on{device, kernels_for(device), format.dtype, format.tf32, options.seed};
        FormatHealth found;
        found.format = format.name;
        found.multiplies = format.multiplies;
        const auto make = [&](const char* name, ComparedValues& into, const std::function<ComparedValues()>& check) {
            tell(fmt::format("{} {}", format.name, name));
            if (!found.deadly.empty()) return;
            try {
                into = check();
            } catch (const Error& error) {  // a device that refuses is a finding, and the others are looked at too
                into.problem = error.what();
            }
        };
        if (!format.tf32) make("conversions", found.conversions, [&] { return check_conversions(on); });
        if (format.multiplies) {
            found.deadly = why_deadly(on, options);
            make("products", found.products, [&] { return check_products(on); });
            make("convolutions", found.convolutions, [&] { return check_convolutions(on); });
            make("NaN and Inf", found.non_finite, [&] { return check_non_finite(on); });
            make("repeats", found.repeats, [&] { return check_repeats(on); });
            if (format.dtype != Dtype::f16 && found.deadly.empty() && found.products.problem.empty())
                found.keeps_subnormals = keeps_subnormals(on);
        }
        health.formats.push_back(std::move(found));
        release_cached_memory(device);
    }
    tell("memory");
    health.memory = check_memory({device, kernels_for(device), Dtype::f32, false, options.seed}, options.memory);
    tell("speed");
    measure_speed(health, options.speed);
    return health;
}

}  // namespace invar
