// Any bytes as CIFAR-10 and CIFAR-100 files: images or an invar::Error, nothing else.
#include "invar/data/cifar.h"

#include "invar/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    for (const invar::Cifar kind : {invar::Cifar::ten, invar::Cifar::hundred}) {
        invar::ImageSet set = invar::empty_cifar(kind);
        try {
            invar::append_cifar(set, {data, size}, "input", kind);
        } catch (const invar::Error&) {
        }
    }
    return 0;
}
