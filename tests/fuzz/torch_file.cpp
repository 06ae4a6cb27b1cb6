// Any bytes as an archive, or as the pickle in one: what torch.save wrote with every tensor within its storage, members
// that have the size their directory says, or an invar::Error, nothing else.
#include "invar/hub/torch_file.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "invar/core/error.h"
#include "tests/data/zip_bytes.h"

namespace {

void read_through(const invar::ZipMember& member, const invar::ReadAt& read, const std::string& file) {
    constexpr std::uint64_t kMost = 1 << 20;
    if (member.size > kMost) return;
    invar::ZipStream stream(member, read, file);
    char piece[4096];
    std::uint64_t held = 0;
    while (const std::size_t count = stream.read(piece, sizeof piece)) held += count;
    if (held != member.size) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    if (size < 1) return 0;
    std::string archive(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] % 2 == 1)
        archive = testing::ZipMaker().add("m/data.pkl", archive).add("m/data/0", std::string(24, '\1')).bytes();
    const ReadAt read = [&](std::uint64_t offset, char* out, std::size_t bytes) {
        if (offset > archive.size() || bytes > archive.size() - offset) std::abort();
        std::memcpy(out, archive.data() + offset, bytes);
    };
    const std::string name = "input";
    try {
        const std::vector<ZipMember> members = zip_members(read, archive.size(), name);
        const TorchFile file(read, members, archive.size(), name);
        for (const TorchTensor& tensor : file.tensors()) {
            std::int64_t last = tensor.offset;
            for (const TorchTensor::Run& run : tensor.runs) last += (run.count - 1) * run.step;
            if (tensor.numel > 0 && std::uint64_t(last + 1) * tensor.width > tensor.storage->size) std::abort();
        }
        for (const ZipMember& member : members) read_through(member, read, name);
    } catch (const Error&) {
    }
    return 0;
}
