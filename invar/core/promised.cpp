#include "invar/core/promised.h"

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include "invar/core/error.h"

namespace invar {

namespace {

struct Absent {
    std::string why;  // of a promised tensor
    Fill fill;        // of a deferred one
    Shape shape;
    Dtype dtype;
    bool filling = false;  // by the thread that has the lock
};

// Recursive: who fills a tensor reads tensors, and everybody else waits until it is filled.
struct Absences {
    std::recursive_mutex mutex;
    std::map<const void*, Absent> by_address;
    std::atomic<int> count = 0;

    static Absences& all() {
        static Absences absences;
        return absences;
    }
    Absent* find(const Storage& storage) {
        const auto found = by_address.find(storage.data());
        return found == by_address.end() ? nullptr : &found->second;
    }
    void erase(const void* place) { count -= int(by_address.erase(place)); }
};

// Addresses without memory behind them: nobody else's, and a fault for those who read them all the same.
Tensor absent_tensor(Absent absent, Device device) {
    const std::size_t bytes = std::max<std::size_t>(std::size_t(absent.shape.numel()) * size_of(absent.dtype), 1);
    void* const place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(place != MAP_FAILED, "no room for {} bytes of addresses", bytes);
    BlobOptions options;
    options.dtype = absent.dtype;
    options.device = device;
    options.deleter = [bytes](void* data) {
        Absences& all = Absences::all();
        const std::lock_guard lock(all.mutex);
        all.erase(data);
        ::munmap(data, bytes);
    };
    const Shape shape = absent.shape;
    Absences& all = Absences::all();
    const std::lock_guard lock(all.mutex);
    all.by_address.emplace(place, std::move(absent));
    ++all.count;
    return Tensor::from_blob(place, shape, options);
}

bool may_be_absent(const Storage& storage) {
    return !storage.owned() && Absences::all().count > 0;
}

bool& defers() {
    thread_local bool deferring = false;
    return deferring;
}

}  // namespace

Tensor promised_tensor(const Shape& shape, Dtype dtype, Device device, std::string why) {
    return absent_tensor({.why = std::move(why), .fill = {}, .shape = shape, .dtype = dtype}, device);
}

Tensor deferred_tensor(const Shape& shape, Dtype dtype, Fill fill) {
    return absent_tensor({.why = "", .fill = std::move(fill), .shape = shape, .dtype = dtype}, {});
}

bool is_deferred(const Tensor& tensor) {
    const Storage& storage = *tensor.storage();
    if (!may_be_absent(storage)) return false;
    Absences& all = Absences::all();
    const std::lock_guard lock(all.mutex);
    const Absent* const absent = all.find(storage);
    return absent != nullptr && absent->fill && !absent->filling;
}

Tensor settled(const Tensor& tensor) {
    Absences& all = Absences::all();
    const std::lock_guard lock(all.mutex);
    if (!is_deferred(tensor)) return tensor;
    const Absent& absent = *all.find(*tensor.storage());
    const PurposeScope purpose(Purpose::workspace);
    const Tensor filled = Tensor::empty(absent.shape, absent.dtype);
    absent.fill(filled);
    return tensor.is_contiguous() && tensor.offset() == 0
               ? filled.window(0, tensor.shape())
               : filled.as_strided(tensor.offset(), tensor.shape(), tensor.strides());
}

void check_present(const Storage& storage) {
    if (!may_be_absent(storage)) return;
    Absences& all = Absences::all();
    const std::lock_guard lock(all.mutex);
    Absent* const absent = all.find(storage);
    if (absent == nullptr || absent->filling) return;
    if (!absent->fill) fail<UsageError>("{}", absent->why);
    check(::mprotect(storage.data(), storage.bytes(), PROT_READ | PROT_WRITE) == 0, "no memory for {} bytes of weights",
          storage.bytes());
    absent->filling = true;
    absent->fill(Tensor::from_blob(storage.data(), absent->shape, {.dtype = absent->dtype}));
    all.erase(storage.data());
}

DeferDraws::DeferDraws() : previous_(defers()) {
    defers() = true;
}
DeferDraws::~DeferDraws() {
    defers() = previous_;
}
bool DeferDraws::active() {
    return defers();
}

}  // namespace invar
