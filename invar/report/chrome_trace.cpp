#include "invar/report/chrome_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace invar {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kStepRow = 0;

int row_of(StepPart part) {
    return 1 + int(part);
}

Json named(const char* what, int row, std::string_view name) {
    return {{"ph", "M"}, {"pid", 1}, {"tid", row}, {"name", what}, {"args", {{"name", name}}}};
}

Json slice(std::string_view name, std::string_view kind, int row, double start, double seconds) {
    return {{"ph", "X"},   {"pid", 1},          {"tid", row},          {"name", name},
            {"cat", kind}, {"ts", 1e6 * start}, {"dur", 1e6 * seconds}};
}

Json slice_of(const TimedOp& op) {
    Json event = slice(op.op, name_of(op.part), row_of(op.part), op.start, op.seconds);
    event["args"] = {{"module", op.module},
                     {"dtype", op.dtype_name()},
                     {"shapes", op.shapes},
                     {"bytes", op.bytes},
                     {"flops", op.flops}};
    return event;
}

// From the first to the last of the operations of a part that follow each other, a slice around them.
void add_parts(const std::vector<TimedOp>& ops, Json& events) {
    for (std::size_t i = 0; i < ops.size();) {
        const StepPart part = ops[i].part;
        double end = 0;
        const double start = ops[i].start;
        for (; i < ops.size() && ops[i].part == part; ++i) end = std::max(end, ops[i].start + ops[i].seconds);
        events.push_back(slice(name_of(part), "part", row_of(part), start, end - start));
    }
}

}  // namespace

std::string chrome_trace(const Profile& profile, std::string_view title) {
    Json events = Json::array();
    events.push_back(named("process_name", kStepRow, title));
    events.push_back(named("thread_name", kStepRow, "step"));
    for (const StepPart part : {StepPart::loading, StepPart::forward, StepPart::backward, StepPart::update})
        events.push_back(named("thread_name", row_of(part), name_of(part)));
    events.push_back(slice("step", "step", kStepRow, 0, profile.traced));
    add_parts(profile.trace, events);
    for (const TimedOp& op : profile.trace) events.push_back(slice_of(op));
    const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
    return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace invar
