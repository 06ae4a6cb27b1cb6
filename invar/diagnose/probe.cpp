#include "invar/diagnose/probe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/json_fields.h"
#include "invar/io/jsonl.h"
#include "invar/io/safetensors.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr const char* kIndex = "index.jsonl";
constexpr int kVersion = 1;
constexpr std::int64_t kMostCounts = std::int64_t(1) << 53;  // sums of them cannot overflow
// A row of the statistics: values by exponent, zeros, NaN, the largest magnitude, minus the smallest.
constexpr std::int64_t kBins = 256, kZeros = kBins, kNans = kBins + 1, kLargest = kBins + 2, kSmallest = kBins + 3,
                       kColumns = kBins + 4;
constexpr std::int64_t kInfinityBits = 0x7f800000;

constexpr std::string_view kKinds[] = {"input", "output", "output_grad", "weight", "weight_grad"};

std::int64_t integer_field(const Json& object, const std::string& key, std::string_view source) {
    const Json& value = field(object, key, source);
    require_field(value.is_number_integer() && value >= 0 && value <= kMostCounts, object, key, source,
                  "is not a count");
    return value.get<std::int64_t>();
}

double number_field(const Json& object, const std::string& key, std::string_view source) {
    const Json& value = field(object, key, source);
    require_field(value.is_number() || value == "nan" || value == "inf" || value == "-inf", object, key, source,
                  "is not a number");
    return number_of(value);
}

// Formats that only PyTorch has count as FP32: their values are judged as they are.
Dtype dtype_named(const std::string& name) {
    if (name == "float64") return Dtype::f64;
    if (name == "float16") return Dtype::f16;
    if (name == "bfloat16") return Dtype::bf16;
    if (name == "float8_e4m3fn") return Dtype::f8e4m3;
    if (name == "float8_e5m2") return Dtype::f8e5m2;
    return Dtype::f32;
}

ProbeKind kind_named(const Json& about, std::string_view source) {
    const std::string name = text_field(about, "kind", source);
    const auto found = std::find(std::begin(kKinds), std::end(kKinds), name);
    require_field(found != std::end(kKinds), about, "kind", source, "is no kind of tensor that is known here");
    return ProbeKind(found - std::begin(kKinds));
}

Tally tally_of(const std::int64_t* row, const std::string& source) {
    const auto bad = [&](bool good) {
        check<IoError>(good, "{}: its statistics contradict themselves; the file is damaged, probe the step again",
                       source);
    };
    Tally tally;
    for (std::int64_t i = 0; i < kLargest; ++i) bad(row[i] >= 0 && row[i] <= kMostCounts);
    bad(row[kZeros] <= row[0] && row[kNans] <= row[kBins - 1]);
    bad(row[kLargest] >= 0 && row[kLargest] < kInfinityBits && row[kSmallest] <= 0 && row[kSmallest] >= -kInfinityBits);
    tally.values = std::accumulate(row, row + kBins, std::int64_t(0));
    bad(tally.values <= kMostCounts);
    tally.zeros = row[kZeros], tally.nans = row[kNans], tally.infinities = row[kBins - 1] - row[kNans];
    std::copy_n(row, tally.exponents.size(), tally.exponents.begin());
    tally.exponents[0] -= tally.zeros;
    if (tally.counted() == 0) return tally;
    bad(row[kSmallest] < 0 && -row[kSmallest] <= row[kLargest]);
    tally.largest = double(std::bit_cast<float>(std::uint32_t(row[kLargest])));
    tally.smallest = double(std::bit_cast<float>(std::uint32_t(-row[kSmallest])));
    return tally;
}

// Of so many calls; more than there can be counts as the most.
std::int64_t values_in(const std::vector<std::int64_t>& shape, std::int64_t calls) {
    double product = double(calls);
    for (const std::int64_t size : shape) product *= double(size);
    return product <= double(kMostCounts) ? std::int64_t(product) : kMostCounts;
}

ProbeTensor tensor_of(const Json& about, const SafetensorsFile& file, const std::string& source) {
    ProbeTensor t;
    t.module = text_field(about, "module", source);
    t.class_name = text_field(about, "class", source);
    t.kind = kind_named(about, source);
    t.index = text_field(about, "index", source);
    t.dtype = dtype_named(text_field(about, "dtype", source));
    for (const Json& size : list_field(about, "shape", source)) {
        require_field(size.is_number_integer() && size >= 0 && size <= kMostCounts, about, "shape", source,
                      "is no shape");
        t.shape.push_back(size.get<std::int64_t>());
    }
    const std::string name = text_field(about, "sample", source);
    check<IoError>(file.contains(name), "{}: the sample {} is missing; the file is damaged, probe the step again",
                   source, Quoted{name});
    const Tensor sample = file.tensor(name);
    check<IoError>(sample.dtype() == Dtype::f32 && sample.rank() == 2,
                   "{}: the sample {} is not a table of FP32; the file is damaged, probe the step again", source,
                   Quoted{name});
    t.features = std::max<std::int64_t>(1, sample.shape()[1]);
    const auto* const values = static_cast<const float*>(sample.raw());
    t.sample.assign(values, values + sample.numel());
    return t;
}

Json parsed_metadata(const Metadata& metadata, const std::string& key, const std::string& source) {
    const auto found = metadata.find(key);
    check<IoError>(found != metadata.end(), "{}: not written by invar_probe.py: its metadata has no \"{}\"", source,
                   key);
    Json value = Json::parse(found->second, nullptr, false);
    check<IoError>(!value.is_discarded(), "{}: its metadata \"{}\" is not JSON; the file is damaged", source, key);
    return value;
}

void check_version(const Json& version, const std::string& source) {
    check<IoError>(version == kVersion || version == std::to_string(kVersion),
                   "{}: version {} of the probe's format, and this program reads version {}; use the invar_probe.py "
                   "that came with it",
                   source, printable(version.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40)),
                   kVersion);
}

}  // namespace

std::string_view name_of(ProbeKind kind) {
    return kKinds[static_cast<std::size_t>(kind)];
}

const ProbeTensor* ProbeStep::find(const ProbeTensor& like) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const ProbeTensor& t) {
        return t.kind == like.kind && t.module == like.module && t.index == like.index;
    });
    return found == tensors.end() ? nullptr : &*found;
}

std::string Probe::title() const {
    return printable(
        fmt::format("{} (PyTorch {}, {} on {})", folder.string(), torch, model, card.empty() ? device : card));
}

bool is_probe(const fs::path& folder) {
    std::error_code error;
    return fs::is_directory(folder, error) && fs::is_regular_file(folder / kIndex, error);
}

Probe open_probe(const fs::path& folder) {
    const std::string source = (folder / kIndex).string();
    const std::vector<Json> lines = read_jsonl(folder / kIndex);
    check<IoError>(!lines.empty() && text_field(lines[0], "format", source, "") == "invar-probe",
                   "{}: not the index of a probe, which tools/pytorch/invar_probe.py writes", source);
    check_version(field(lines[0], "version", source), source);
    Probe probe;
    probe.folder = folder;
    probe.torch = text_field(lines[0], "torch", source, "");
    probe.device = text_field(lines[0], "device", source, "");
    probe.card = text_field(lines[0], "card", source, "");
    probe.model = text_field(lines[0], "model", source, "");
    for (const Json& module : list_field(lines[0], "modules", source)) {
        check<IoError>(module.is_array() && module.size() == 2 && module[0].is_string() && module[1].is_string(),
                       "{}: \"modules\" is not a list of names and classes", source);
        probe.modules.emplace_back(module[0].get<std::string>(), module[1].get<std::string>());
    }
    for (std::size_t i = 1; i < lines.size(); ++i) {
        ProbeLine line{integer_field(lines[i], "step", source), text_field(lines[i], "file", source),
                       flag_field(lines[i], "failed", false, source)};
        const fs::path file = line.file;
        check<IoError>(!line.file.empty() && file.filename() == file && line.file != "." && line.file != "..",
                       "{}: file = {}: must be a file of this folder", source, Quoted{line.file});
        probe.lines.push_back(std::move(line));
    }
    check<IoError>(!probe.lines.empty(), "{}: no step was probed; call probe.step(loss) after backward() in each step",
                   source);
    std::stable_sort(probe.lines.begin(), probe.lines.end(),
                     [](const ProbeLine& a, const ProbeLine& b) { return a.step < b.step; });
    return probe;
}

ProbeStep Probe::load(const ProbeLine& line) const {
    const std::string source = (folder / line.file).string();
    const SafetensorsFile file(folder / line.file, ForeignDtypes::list);
    check_version(parsed_metadata(file.metadata(), "version", source), source);
    const Json facts = parsed_metadata(file.metadata(), "facts", source);
    const Json about = parsed_metadata(file.metadata(), "tensors", source);
    ProbeStep step;
    step.step = integer_field(facts, "step", source);
    check<IoError>(step.step == line.step, "{}: holds step {}, and the index says {}; probe the run again", source,
                   step.step, line.step);
    step.why = text_field(facts, "why", source);
    if (find_field(facts, "failed_step") != nullptr) step.failed_step = integer_field(facts, "failed_step", source);
    if (find_field(facts, "loss") != nullptr) step.loss = number_field(facts, "loss", source);
    step.grad_norm = number_field(facts, "grad_norm", source);
    step.scale = number_field(facts, "scale", source);
    require_field(std::isfinite(step.scale) && step.scale > 0, facts, "scale", source, "is no loss scale");
    step.skips = integer_field(facts, "skips", source);
    step.skipped = flag_field(facts, "skipped", false, source);
    step.failed = flag_field(facts, "failed", false, source);
    if (const std::string name = text_field(facts, "autocast", source); name != "none")
        step.autocast = dtype_named(name);
    check<IoError>(about.is_array() && file.contains("statistics"), "{}: its statistics are missing; probe it again",
                   source);
    const Tensor statistics = file.tensor("statistics");
    check<IoError>(statistics.dtype() == Dtype::i64 && statistics.rank() == 2 &&
                       statistics.shape()[0] == std::int64_t(about.size()) && statistics.shape()[1] == kColumns,
                   "{}: its statistics are not {} rows of {} integers; the file is damaged, probe the step again",
                   source, about.size(), kColumns);
    const auto* const rows = static_cast<const std::int64_t*>(statistics.raw());
    for (std::size_t i = 0; i < about.size(); ++i) {
        ProbeTensor tensor = tensor_of(about[i], file, source);
        tensor.tally = tally_of(rows + std::int64_t(i) * kColumns, source);
        tensor.calls = integer_field(about[i], "calls", source);
        tensor.reckoned = tensor.tally.values != values_in(tensor.shape, tensor.calls);
        step.tensors.push_back(std::move(tensor));
    }
    return step;
}

}  // namespace invar
