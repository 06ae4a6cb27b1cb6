// Any bytes as a checkpoint, as they come and with their checksum put right, so that what lies behind it is reached.
#include "invar/io/checkpoint.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "invar/core/error.h"
#include "invar/io/checksum.h"

namespace {

void parse(std::string_view bytes) {
    try {
        invar::parse_checkpoint(bytes, "fuzz");
    } catch (const invar::Error&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    parse(bytes);
    constexpr std::size_t kSumOffset = 8 + std::string_view(R"({"__metadata__":{"crc32c":")").size();
    if (size < kSumOffset + 8) return 0;
    bytes.replace(kSumOffset, 8, 8, '0');
    bytes.replace(kSumOffset, 8, fmt::format("{:08x}", invar::crc32c(bytes)));
    parse(bytes);
    return 0;
}
