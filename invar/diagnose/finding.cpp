#include "invar/diagnose/finding.h"

#include <fmt/format.h>

#include "invar/formats/format_tally.h"
#include "invar/kernels/kernels.h"

namespace invar {

std::string_view name_of(Direction direction) {
    return direction == Direction::forward ? "forward" : "backward";
}

std::string_view name_of(Blame blame) {
    constexpr std::string_view kNames[] = {"precision", "loss scale", "model", "data", "weights", "learning rate"};
    return kNames[static_cast<std::size_t>(blame)];
}

Range range_of(const std::string& what, const Tensor& tensor) {
    Range range{what, fmt::format("{}{}", name_of(tensor.dtype()), tensor.shape().str())};
    if (!is_floating(tensor.dtype()) || tensor.numel() == 0) return range;
    Tensor host = tensor.on_host();
    if (!host.is_contiguous()) {
        const Tensor dense = Tensor::empty_like(host);
        kernels_for(dense.device()).copy(host.view(), dense.view());
        host = dense;
    }
    Tally tally;
    tally_values(host.dtype(), host.raw(), std::size_t(host.numel()), {}, tally);
    range.smallest = tally.smallest, range.largest = tally.largest;
    range.values = tally.values, range.zeros = tally.zeros;
    range.infinities = tally.infinities, range.nans = tally.nans;
    return range;
}

std::string Range::str() const {
    std::string text = fmt::format("{} {}", what, type);
    if (values == 0) return text;
    text += largest > 0 ? fmt::format(", {:.3g} to {:.3g}", smallest, largest) : zeros == values ? ", all zero" : "";
    if (zeros > 0 && zeros < values) text += fmt::format(", {:.0f}% zeros", 100.0 * double(zeros) / double(values));
    if (infinities > 0) text += fmt::format(", {} Inf", infinities);
    if (nans > 0) text += fmt::format(", {} NaN", nans);
    return text;
}

std::string Finding::where() const {
    return fmt::format("{} in {}, {}", op, module.empty() ? "the model itself" : module, name_of(direction));
}

// The whole step is run in FP32 from its beginning and without a loss scale: it may be finite where the operation is
// not.
std::string Finding::in_fp32() const {
    const std::string own = !op_tried   ? ""
                            : op_finite ? "this operation is finite, "
                                        : "this operation is not finite on the same inputs, ";
    return fmt::format("in FP32: {}the whole step is {}", own, step_finite ? "finite" : "not finite");
}

JsonLine Finding::json() const {
    JsonLine line;
    line.add("found", found);
    if (!found) return line;
    line.add("direction", name_of(direction)).add("module", module).add("op", op).add("dtype", name_of(dtype));
    const auto range_line = [](const Range& range) {
        JsonLine part;
        part.add("type", range.type).add("smallest", range.smallest).add("largest", range.largest);
        part.add("values", range.values).add("zeros", range.zeros);
        return part.add("infinities", range.infinities).add("nans", range.nans);
    };
    JsonLine given;
    for (const Range& range : inputs) given.add(range.what, range_line(range));
    line.add("inputs", given).add("result", range_line(result)).add("scale", scale);
    line.add("op_finite_in_fp32", op_finite).add("op_largest_in_fp32", op_largest);
    line.add("step_finite_in_fp32", step_finite).add("blame", name_of(blame)).add("explanation", explanation);
    return line.add("remedy", remedy.str()).add("verified", verified);
}

std::string Finding::text() const {
    std::string lines = fmt::format("first bad operation: {}\n", where());
    for (const Range& range : inputs) lines += fmt::format("  {}\n", range.str());
    lines += fmt::format("  {}\n", result.str());
    lines += fmt::format("to blame: {}; {}\n", name_of(blame), explanation);
    if (remedy) lines += fmt::format("remedy: {} {}\n", remedy.str(), remedy_tried());
    return lines;
}

std::string Finding::remedy_tried() const {
    if (!verified) return remedy ? "(not tried)" : "";
    return remedy.kind == Remedy::Kind::learning_rate ? "(the same steps were trained with it, and go well)"
                                                      : "(replayed with it, the step is finite)";
}

}  // namespace invar
