#include "invar/formats/tensor_history.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/hub/weight_files.h"
#include "invar/io/checkpoint.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPiece = std::size_t(512) << 10;

// "step_00000120" -> 120, "epoch=3-step=500" -> 500
std::optional<std::int64_t> last_number(const std::string& text) {
    const std::size_t last = text.find_last_of("0123456789");
    if (last == text.npos) return std::nullopt;
    const std::size_t first = text.find_last_not_of("0123456789", last) + 1;  // 0 where there is nothing before
    const std::string digits = text.substr(first, last + 1 - first);
    if (digits.size() > 15) return std::nullopt;
    return std::stoll(digits);
}

std::optional<std::int64_t> step_of(const fs::path& file) {
    const fs::path folder = fs::absolute(file).lexically_normal().parent_path();
    if (folder.filename().string().starts_with("checkpoint-")) return last_number(folder.filename().string());
    return last_number(file.stem().string());
}

bool is_weights(const fs::path& file) {
    const std::string extension = file.extension().string(), name = file.filename().string();
    for (const char* known : {".safetensors", ".npz", ".pt", ".pth"})
        if (extension == known) return !name.starts_with('.');
    return name == "pytorch_model.bin";
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::error_code error, ignored;
    std::vector<fs::path> files;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (is_weights(entry->path()) && entry->is_regular_file(ignored)) files.push_back(entry->path());
    std::sort(files.begin(), files.end());
    return files;
}

// The weights of a folder that Hugging Face's trainer saved; "" where there are none.
fs::path weights_in(const fs::path& folder) {
    std::error_code ignored;
    for (const char* name : {kWeightsFile, kIndexFile, "pytorch_model.bin"})
        if (fs::exists(folder / name, ignored)) return folder / name;
    return {};
}

const StoredTensor& find_tensor(const TensorFile& file, const std::string& name, const fs::path& path) {
    std::vector<const StoredTensor*> ends;
    std::vector<std::string> names;
    for (const StoredTensor& tensor : file.tensors()) {
        if (tensor.name == name) return tensor;
        if (tensor.name.ends_with("." + name)) ends.push_back(&tensor);
        names.push_back(tensor.name);
        names.push_back(tensor.name.substr(tensor.name.find('.') + 1));
    }
    for (const StoredTensor* tensor : ends)
        if (ends.size() == 1 || tensor->name == "model." + name) return *tensor;
    for (const LeftOut& other : file.left_out())
        check<UsageError>(other.name != name, "{}: the tensor {} is of {}, which is not judged", path.string(),
                          Quoted{name}, other.dtype);
    if (ends.empty())
        fail<UsageError>("{}: no tensor {} in it{}; `inspect {} --top 0` lists them", path.string(), Quoted{name},
                         did_you_mean(name, names), path.string());
    std::vector<std::string> meant;
    for (const StoredTensor* tensor : ends)
        if (meant.size() < 5) meant.push_back(tensor->name);
    fail<UsageError>("{}: {} may be {}{}; give the whole name", path.string(), Quoted{name}, fmt::join(meant, " or "),
                     ends.size() > meant.size() ? " or others" : "");
}

TensorAtStep look_at(const fs::path& path, const std::string& name, const std::vector<Dtype>& formats) {
    const TensorFile file(path);
    const StoredTensor& stored = find_tensor(file, name, path);
    TensorAtStep at;
    at.file = path;
    at.step = step_of(path);
    at.tensor = {stored.name, stored.dtype, stored.shape, Tally(formats.size())};
    long double squares = 0;  // those of large doubles are beyond double
    double least = std::numeric_limits<double>::infinity(), greatest = -least;
    std::vector<char> buffer(kPiece);
    const std::unique_ptr<TensorStream> stream = stored.open();
    while (const std::size_t bytes = stream->read(buffer.data(), buffer.size())) {
        const std::size_t count = bytes / size_of(stored.dtype);
        tally_values(stored.dtype, buffer.data(), count, formats, at.tensor.tally);
        dispatch(stored.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            for (std::size_t i = 0; i < count; ++i) {
                T stored_value;
                std::memcpy(&stored_value, buffer.data() + i * sizeof(T), sizeof(T));
                const auto value = double(stored_value);
                if (!std::isfinite(value)) continue;
                squares += static_cast<long double>(value) * value;
                least = std::min(least, value);
                greatest = std::max(greatest, value);
            }
        });
    }
    at.norm = double(std::sqrt(squares));
    if (least <= greatest) at.least = least, at.greatest = greatest;
    return at;
}

}  // namespace

std::vector<fs::path> weight_files_of(const fs::path& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return {path};
    std::vector<fs::path> files;
    const CheckpointFolder ours(path / "checkpoints", 1);
    for (const std::int64_t step : ours.steps()) files.push_back(ours.path_of(step));
    if (!files.empty()) return files;
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().filename().string().starts_with("checkpoint-"))
            if (const fs::path weights = weights_in(entry->path()); !weights.empty()) files.push_back(weights);
    if (files.empty() && !weights_in(path).empty()) files = {weights_in(path)};
    if (files.empty()) files = files_in(path);
    check<UsageError>(
        !files.empty(),
        "{}: no weights in it; give a run, a folder of checkpoint-N or of .safetensors, .npz or .pt files",
        path.string());
    return files;
}

std::vector<TensorAtStep> follow_tensor(const std::vector<fs::path>& paths, const std::string& name,
                                        const std::vector<Dtype>& formats) {
    std::vector<TensorAtStep> steps;
    for (const fs::path& path : paths)
        for (const fs::path& file : weight_files_of(path)) steps.push_back(look_at(file, name, formats));
    if (std::ranges::all_of(steps, [](const TensorAtStep& at) { return at.step.has_value(); }))
        std::stable_sort(steps.begin(), steps.end(), [](auto& a, auto& b) { return *a.step < *b.step; });
    return steps;
}

}  // namespace invar
