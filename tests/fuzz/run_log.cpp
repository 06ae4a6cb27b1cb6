// Any bytes as the log of a run, CSV and JSON lines: series of equal length or an invar::Error, nothing else.
#include "invar/validate/run_log.h"

#include <cstdint>
#include <cstdlib>

#include "invar/core/error.h"
#include "invar/validate/metric_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        const invar::RunLog log = data[0] % 3 == 0   ? invar::parse_csv_log(text, "input")
                                  : data[0] % 3 == 1 ? invar::parse_json_log(text, "input")
                                                     : invar::parse_log(text, "input");
        for (const auto& [name, series] : log.series)
            if (series.empty() || series.x.size() != series.y.size()) std::abort();
        invar::default_metric(log.names());
        invar::find_metric("loss", log.names());
    } catch (const invar::Error&) {
    }
    return 0;
}
