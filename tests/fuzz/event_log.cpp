// Any bytes as a file that other programs log runs to: an event file, an event within a record whose checksums are
// right, a .wandb file, or a record of one. Series of equal length or an invar::Error, nothing else.
#include "invar/io/event_log.h"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>

#include "invar/core/error.h"
#include "invar/io/checksum.h"
#include "invar/validate/mlflow_runs.h"
#include "invar/validate/wandb_chart.h"
#include "invar/validate/wandb_runs.h"

namespace {

std::string little(std::uint64_t value, int width) {
    std::string bytes;
    for (int i = 0; i < width; ++i) bytes += char(value >> (8 * i));
    return bytes;
}

std::string event_record(std::string_view event) {
    const std::string length = little(event.size(), 8);
    return (length + little(invar::masked_crc32c(length), 4)).append(event) + little(invar::masked_crc32c(event), 4);
}

std::string wandb_record(std::string_view record) {
    const std::string summed = '\1' + std::string(record.substr(0, 32000));
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(summed.data()), uInt(summed.size()));
    return std::string(":W&B\xe1\xbe\0", 7) + little(sum, 4) + little(summed.size() - 1, 2) + summed;
}

void look_at(const invar::RunLog& log) {
    for (const auto& [name, series] : log.series)
        if (series.empty() || series.x.size() != series.y.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    if (size < 1) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        EventLog events;
        std::string note;
        switch (data[0] % 6) {
            case 0:
                events.add(text, "input");
                break;
            case 1:
                events.add(event_record(text), "input");
                break;
            case 2:
                look_at(parse_wandb_file(text, "input").log);
                break;
            case 3:
                look_at(parse_wandb_file(wandb_record(text), "input").log);
                break;
            case 4:
                parse_mlflow_metric(text, "input", note);
                break;
            default:
                if (is_wandb_chart(text))
                    for (const std::string& run : runs_in_chart(text)) look_at(parse_chart_run(text, run, "input"));
        }
    } catch (const Error&) {
    }
    return 0;
}
