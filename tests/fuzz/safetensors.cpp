// Any bytes as a safetensors file: either it is one, and what was read is within it, or an Error says why not.
#include "invar/io/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "invar/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    try {
        const SafetensorsContent content = parse_safetensors(bytes, "fuzz");
        // What was read can be laid out again, and reads back the same.
        const SafetensorsImage image = lay_out_safetensors(content.tensors, content.metadata);
        std::string again;
        for (const std::string_view piece : image.pieces()) again += piece;
        const SafetensorsContent back = parse_safetensors(again, "again");
        if (back.metadata != content.metadata || back.tensors.size() != content.tensors.size()) std::abort();
    } catch (const Error&) {
    }
    return 0;
}
