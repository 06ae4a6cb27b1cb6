// Any bytes as a table of text, an .npy array and an .npz archive: data or an invar::Error, nothing else.
#include "invar/core/error.h"
#include "invar/data/csv.h"
#include "invar/data/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::span<const std::uint8_t> bytes(data + 2, size - 2);
    try {
        switch (data[0] % 3) {
            case 0:
                invar::parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "input",
                                 {.target = std::to_string(int(data[1]) - 128)});
                break;
            case 1:
                invar::parse_npy(bytes, "input");
                break;
            default:
                const invar::NpzFile arrays(bytes, "input");
                for (const std::string& name : arrays.names())
                    if (arrays.holds_numbers(name)) arrays.array(name);
        }
    } catch (const invar::Error&) {
    }
    return 0;
}
