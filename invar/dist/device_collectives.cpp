// NCCL is loaded when ranks with GPUs first ask for it, by a small library of ours, so that a program starts where it
// is missing. Whether it is used is decided by all ranks for all.
#include "invar/dist/device_collectives.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "invar/core/error.h"
#include "invar/core/loaded_from.h"
#include "invar/dist/communicator.h"

namespace invar {

namespace {

constexpr const char* kLibrary = "libinvar_nccl.so";

std::string asked_for() {
    const char* const value = std::getenv("INVAR_NCCL_LIBRARY");
    return value == nullptr ? "" : value;
}

struct Found {
    NcclJoin join = nullptr;
    std::string card;  // of which machine, too
    std::string why_not;
};

std::string machine_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Found find_here(Device device) {
    if (device.kind != Device::Kind::cuda) return {nullptr, "", "it has no GPU"};
    if (asked_for() == "none") return {nullptr, "", "INVAR_NCCL_LIBRARY is none"};
    const std::filesystem::path path = loaded_from(reinterpret_cast<void*>(&join_nccl)) / kLibrary;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return {nullptr, "", "it was built without NCCL"};
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const reason = dlerror();
        return {nullptr, "", reason != nullptr ? reason : path.string()};
    }
    const auto open = reinterpret_cast<NcclOpen>(dlsym(library, kNcclOpen));
    Found found{reinterpret_cast<NcclJoin>(dlsym(library, kNcclJoin)), "", ""};
    if (open == nullptr || found.join == nullptr)
        found.why_not = path.string() + " is of another version of Invar";
    else if (open(found.card, found.why_not))
        found.card = machine_name() + " " + found.card;
    return found;
}

}  // namespace

std::unique_ptr<DeviceCollectives> join_nccl(Communicator& ranks, Device device, std::string& why_not) {
    const Found here = find_here(device);
    const std::vector<std::string> problems = ranks.gathered(here.why_not), cards = ranks.gathered(here.card);
    for (std::size_t r = 0; r < problems.size(); ++r) {
        if (problems[r].empty()) continue;
        why_not = fmt::format("rank {} is without NCCL, {}", r, problems[r]);
        return nullptr;
    }
    const bool shared = std::set<std::string>(cards.begin(), cards.end()).size() < cards.size();
    if (ranks.any(shared && asked_for().empty())) {
        why_not = "ranks share a card, which NCCL refuses";
        return nullptr;
    }
    std::string why;
    std::unique_ptr<DeviceCollectives> joined(here.join(ranks, why));
    if (joined == nullptr) throw RankError(why);
    return joined;
}

}  // namespace invar
