// libFuzzer target: any bytes as the config.json or the index of a Hugging Face folder end in keys that a Config takes,
// in a map of plain file names, or in one of our errors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "invar/core/error.h"
#include "invar/hub/config_json.h"
#include "invar/hub/weight_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const JsonObject json = JsonObject::parse(text, "fuzz");
        try {
            Part model("model", "gpt");
            for (const FolderKey& key : keys_of_config_json(json)) {
                if (!key.key.starts_with("model.")) std::abort();
                if (key.key == "model.name")
                    model.choose(key.value);
                else
                    model.set(key.key.substr(6), key.value);
            }
        } catch (const Error&) {
        }
        for (const auto& [tensor, file] : parse_index(json))
            if (file.empty() || file.find('/') != file.npos || file == "..") std::abort();
    } catch (const Error&) {
    }
    return 0;
}
