// What a rank needs and has: data, memory, disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "invar/core/error.h"
#include "invar/core/version.h"
#include "invar/diagnose/memory_there.h"
#include "invar/diagnose/preflight_parts.h"
#include "invar/dist/roll_call.h"
#include "invar/kernels/devices.h"
#include "invar/plan/ranks.h"
#include "invar/tasks/registry.h"
#include "invar/train/setup.h"

namespace invar {

namespace {

namespace fs = std::filesystem;

void look_at_memory(const std::shared_ptr<const Task>& task, const Config& config, Device device, int size,
                    RankFacts& facts) {
    const std::int64_t batch = (config.data.batch_size + size - 1) / size;
    const Ranks ranks{.count = size,
                      .strategy = parse_strategy(config.trainer.strategy),
                      .gradient_bytes = config.trainer.reduce_precision.starts_with("bf16") ? 2 : 4};
    const std::optional<CountedStep> step = count_step(task, config, batch, {device, 0, nullptr, ranks});
    facts.memory_needed = step->held;
    facts.memory_there = memory_there(device).free;
    const char* const card = std::getenv("CUDA_VISIBLE_DEVICES");
    facts.memory_of = facts.host + (device.is_cpu() ? "" : fmt::format(" GPU {}", card != nullptr ? card : "0"));
    // FP32 weights and the optimizer's state of all ranks.
    const int parts = ranks.strategy == Strategy::ddp ? 1 : size;
    facts.disk_needed = 4 * step->parameters + parts * step->step.peak_of(Purpose::optimizer);
}

// As much as a few pages is written: a full disk and a lack of permission both show.
void look_at_disk(const Config& config, RankFacts& facts) {
    const fs::path folder = nearest_folder(config.output_dir);
    check(fs::is_directory(folder), "output_dir={}: {} is no folder", config.output_dir, folder.string());
    struct statvfs room {};
    check(::statvfs(folder.c_str(), &room) == 0, "{}: {}", folder.string(), std::strerror(errno));
    facts.disk_there = std::int64_t(room.f_bavail) * std::int64_t(room.f_frsize);
    std::string name = (folder / ".invar_check_XXXXXX").string();
    const int file = ::mkostemp(name.data(), O_CLOEXEC);
    check(file >= 0, "output_dir={}: nothing can be written in {}: {}", config.output_dir, folder.string(),
          std::strerror(errno));
    const std::string pages(std::size_t(1) << 16, 'x');
    const ssize_t written = ::write(file, pages.data(), pages.size());
    int why = written < 0 ? errno : written < ssize_t(pages.size()) ? ENOSPC : 0;
    if (why == 0 && ::fsync(file) != 0) why = errno;
    ::close(file);
    ::unlink(name.c_str());
    check(why == 0, "output_dir={}: nothing can be written in {}: {}", config.output_dir, folder.string(),
          std::strerror(why));
    check(facts.disk_there >= facts.disk_needed, "output_dir={}: a checkpoint takes {}, and {} has room for {}",
          config.output_dir, bytes_text(facts.disk_needed), folder.string(), bytes_text(facts.disk_there));
}

// Describes a split after a batch of it was read.
std::string read_some(const Task& task, Config config, Split split, std::int64_t& samples) {
    config.data.num_workers = 0;
    config.data.batch_size = std::min<std::int64_t>(config.data.batch_size, 8);
    config.data.drop_last = false;
    config.trainer.limit_train_batches = config.trainer.limit_val_batches = BatchCount::all();
    const std::unique_ptr<Loader> loader = make_loader(task, config, split, Device{});
    loader->start_epoch(0);
    check(loader->next().has_value(), "there is no batch to {} on", split == Split::train ? "train" : "validate");
    samples = loader->dataset().size();
    return described(loader->dataset());
}

}  // namespace

fs::path nearest_folder(const fs::path& wanted) {
    fs::path folder = fs::absolute(wanted);
    while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
    return folder;
}

std::string bytes_text(std::int64_t bytes) {
    if (bytes < std::int64_t(1) << 30) return fmt::format("{:.1f} MiB", double(bytes) / 0x1p20);
    return fmt::format("{:.1f} GiB", double(bytes) / 0x1p30);
}

OwnFindings look_around(const Config& config, int rank, int size) {
    // What is made here is of one process: nobody is asked.
    const std::unique_ptr<Communicator> alone = make_alone();
    const WorldScope by_itself(*alone);
    OwnFindings found;
    found.facts.host = host_name();
    found.facts.version = INVAR_VERSION;
    const auto attempt = [&](const char* what, const auto& look) {
        try {
            look();
            return true;
        } catch (const std::exception& error) {
            found.problems.push_back({rank, Mark::fail, what, error.what()});
            return false;
        }
    };
    std::optional<Device> device;
    attempt("device", [&] {
        device = resolve_device(config.trainer.device);
        config.trainer.resolved_precision().require(*device);
        found.facts.device = device->str();
    });
    std::shared_ptr<const Task> task;
    const bool readable = attempt("data", [&] {
        task = make_task(config);
        found.facts.train_data = read_some(*task, config, Split::train, found.facts.train_samples);
        found.facts.test_data = read_some(*task, config, Split::test, found.facts.test_samples);
    });
    if (readable && device) attempt("memory", [&] { look_at_memory(task, config, *device, size, found.facts); });
    attempt("disk", [&] { look_at_disk(config, found.facts); });
    return found;
}

}  // namespace invar
