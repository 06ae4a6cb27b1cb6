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
        // Whatever the dtypes, no tensor lies outside the file.
        const SafetensorsFile file(bytes, "fuzz", ForeignDtypes::list);
        for (const TensorEntry& entry : file.entries())
            if (file.tensor(entry.name).bytes() != entry.end - entry.begin || entry.end > size) std::abort();
        if (!file.foreign().empty()) return 0;
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
