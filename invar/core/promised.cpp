#include "invar/core/promised.h"

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include "invar/core/error.h"

namespace invar {

namespace {

struct Promises {
    std::mutex mutex;
    std::map<const void*, std::string> why;  // by their addresses
    std::atomic<int> count = 0;

    static Promises& all() {
        static Promises promises;
        return promises;
    }
};

}  // namespace

// Addresses without memory behind them: nobody else's, and a fault for those who read them all the same.
Tensor promised_tensor(const Shape& shape, Dtype dtype, Device device, std::string why) {
    const std::size_t bytes = std::max<std::size_t>(std::size_t(shape.numel()) * size_of(dtype), 1);
    void* const place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(place != MAP_FAILED, "no room for {} bytes of addresses", bytes);
    Promises& promises = Promises::all();
    {
        const std::lock_guard lock(promises.mutex);
        promises.why.emplace(place, std::move(why));
        ++promises.count;
    }
    BlobOptions options;
    options.dtype = dtype;
    options.device = device;
    options.deleter = [bytes](void* data) {
        Promises& all = Promises::all();
        const std::lock_guard lock(all.mutex);
        all.why.erase(data);
        --all.count;
        ::munmap(data, bytes);
    };
    return Tensor::from_blob(place, shape, options);
}

bool is_promised(const Storage& storage) {
    Promises& promises = Promises::all();
    if (storage.owned() || promises.count == 0) return false;
    const std::lock_guard lock(promises.mutex);
    return promises.why.contains(storage.data());
}

void check_present(const Storage& storage) {
    if (!is_promised(storage)) return;
    Promises& promises = Promises::all();
    const std::lock_guard lock(promises.mutex);
    fail<UsageError>("{}", promises.why.at(storage.data()));
}

}  // namespace invar
