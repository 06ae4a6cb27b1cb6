#include "invar/hub/torch_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "invar/core/error.h"
#include "invar/hub/pickle.h"
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar {

namespace {

using Kind = PickleValue::Kind;

constexpr std::uint64_t kMostPickle = std::uint64_t(32) << 20;
constexpr int kDeepest = 32;
constexpr std::size_t kLongestName = 4096;
constexpr std::uint64_t kMostSharing = 16;  // how often tensors may lie in the same bytes, on average

struct TorchType {
    std::string_view storage, dtype;
    std::size_t width;
    std::optional<Dtype> known = {};
};
constexpr TorchType kTypes[] = {{"FloatStorage", "float32", 4, Dtype::f32},
                                {"DoubleStorage", "float64", 8, Dtype::f64},
                                {"HalfStorage", "float16", 2, Dtype::f16},
                                {"BFloat16Storage", "bfloat16", 2, Dtype::bf16},
                                {"", "float8_e4m3fn", 1, Dtype::f8e4m3},
                                {"", "float8_e5m2", 1, Dtype::f8e5m2},
                                {"LongStorage", "int64", 8, Dtype::i64},
                                {"IntStorage", "int32", 4, Dtype::i32},
                                {"ByteStorage", "uint8", 1, Dtype::u8},
                                {"BoolStorage", "bool", 1, Dtype::boolean},
                                {"ShortStorage", "int16", 2},
                                {"CharStorage", "int8", 1},
                                {"ComplexFloatStorage", "complex64", 8},
                                {"ComplexDoubleStorage", "complex128", 16}};

const TorchType* find_type(std::string_view name, std::string_view TorchType::*field) {
    const auto found = std::ranges::find(kTypes, name, field);
    return name.empty() || found == std::end(kTypes) ? nullptr : found;
}

// "torch.FloatStorage" -> "FloatStorage", "torch.storage.UntypedStorage" -> the same
std::string_view in_torch(std::string_view global) {
    return global.starts_with("torch.") ? global.substr(6) : std::string_view();
}

bool knows(std::string_view global) {
    static constexpr std::string_view kKnown[] = {"collections.OrderedDict",
                                                  "torch._utils._rebuild_tensor_v2",
                                                  "torch._utils._rebuild_tensor_v3",
                                                  "torch._utils._rebuild_parameter",
                                                  "torch.Size",
                                                  "torch._utils._rebuild_parameter_with_state",
                                                  "torch.storage.UntypedStorage",
                                                  "torch.device"};
    return std::ranges::find(kKnown, global) != std::end(kKnown) ||
           find_type(in_torch(global), &TorchType::storage) != nullptr ||
           find_type(in_torch(global), &TorchType::dtype) != nullptr;
}

// Goes through the values of a pickle and notes the tensors among them.
class Collector {
  public:
    Collector(const Pickle& pickle, std::size_t pickle_bytes, const std::string& root,
              const std::vector<ZipMember>& members, const std::string& source)
        : pickle_(pickle), steps_left_(pickle_bytes + 64), source_(source) {
        for (const ZipMember& member : members)
            if (member.name.starts_with(root + "data/"))
                storages_.emplace(member.name.substr(root.size() + 5), &member);
    }

    std::vector<TorchTensor> run() {
        collect(pickle_.root(), "", 0);
        return std::move(found_);
    }

  private:
    [[noreturn]] void odd(const std::string& name, std::string_view what) const {
        fail<IoError>("{}: the tensor {} {}; the file is damaged", source_, Quoted{name}, what);
    }

    void collect(const PickleValue& value, const std::string& name, int depth) {
        check<IoError>(depth <= kDeepest, "{}: its values are nested deeper than {} levels, or hold themselves",
                       source_, kDeepest);
        check<IoError>(steps_left_-- > 0, "{}: its values hold one another more often than a file of tensors needs",
                       source_);
        check<IoError>(name.size() <= kLongestName, "{}: a tensor in it has a name of more than {} bytes", source_,
                       kLongestName);
        const auto inner = [&](std::string_view key) {
            return name.empty() ? std::string(key) : name + "." + std::string(key);
        };
        if (value.kind == Kind::dict) {
            for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
                const PickleValue& key = pickle_.at(value.items[i]);
                check<IoError>(key.text.size() <= kLongestName, "{}: a key in it has more than {} bytes", source_,
                               kLongestName);
                collect(pickle_.at(value.items[i + 1]),
                        inner(key.kind == Kind::text ? std::string(key.text) : fmt::format("{}", key.integer)),
                        depth + 1);
            }
        } else if (value.kind == Kind::list || value.kind == Kind::tuple) {
            for (std::size_t i = 0; i < value.items.size(); ++i)
                collect(pickle_.at(value.items[i]), inner(fmt::format("{}", i)), depth + 1);
        } else if (value.kind == Kind::call) {
            collect_call(value, name, depth);
        }
    }

    void collect_call(const PickleValue& call, const std::string& name, int depth) {
        const std::string_view function = pickle_.at(call.items[0]).text;
        const std::vector<PickleValue::Index>& arguments = pickle_.at(call.items[1]).items;
        if (function.starts_with("torch._utils._rebuild_parameter")) {
            if (arguments.empty()) odd(name, "is a parameter of nothing");
            collect(pickle_.at(arguments[0]), name, depth + 1);
        } else if (function.starts_with("torch._utils._rebuild_tensor_v")) {
            const bool untyped = function.ends_with("3");
            if (arguments.size() < (untyped ? 7u : 4u)) odd(name, "is described by too little");
            found_.push_back(tensor_of(arguments, untyped, name.empty() ? "tensor" : name));
        }
    }

    TorchTensor tensor_of(const std::vector<PickleValue::Index>& arguments, bool untyped, const std::string& name) {
        const PickleValue& storage = pickle_.at(arguments[0]);
        if (storage.kind != Kind::persistent) odd(name, "has no storage");
        const std::vector<PickleValue::Index>& id = pickle_.at(storage.items[0]).items;
        if (id.size() < 5 || pickle_.at(id[0]).text != "storage") odd(name, "has a storage of an unknown kind");
        const TorchType* const type = untyped ? find_type(in_torch(pickle_.at(arguments[6]).text), &TorchType::dtype)
                                              : find_type(in_torch(pickle_.at(id[1]).text), &TorchType::storage);
        if (type == nullptr) odd(name, "has no dtype that is known");
        TorchTensor tensor;
        tensor.name = name;
        tensor.dtype = type->dtype;
        tensor.known = type->known;
        tensor.width = type->width;
        const auto member = storages_.find(pickle_.at(id[2]).text);
        check<IoError>(member != storages_.end(),
                       "{}: the storage {} of the tensor {} is missing; fetch the file again", source_,
                       Quoted{pickle_.at(id[2]).text}, Quoted{name});
        tensor.storage = member->second;
        check<IoError>(!tensor.storage->deflated,
                       "{}: the storage of the tensor {} is compressed; save it by torch.save", source_, Quoted{name});
        tensor.offset = pickle_.at(arguments[1]).integer;
        lay_out(tensor, pickle_.at(arguments[2]), pickle_.at(arguments[3]));
        return tensor;
    }

    // Sizes and strides against what is there: within the storage, and no element in two places.
    void lay_out(TorchTensor& tensor, const PickleValue& sizes, const PickleValue& strides) const {
        const std::size_t rank = sizes.items.size();
        check<IoError>(rank <= std::size_t(kMaxRank), "{}: the tensor {} has {} dimensions, expected at most {}",
                       source_, Quoted{tensor.name}, rank, kMaxRank);
        if (strides.items.size() != rank) odd(tensor.name, "has not a stride for each size");
        const auto there = std::int64_t(tensor.storage->size / tensor.width);
        tensor.numel = 1;
        for (std::size_t i = 0; i < rank; ++i) {
            const std::int64_t size = pickle_.at(sizes.items[i]).integer, stride = pickle_.at(strides.items[i]).integer;
            if (size < 0 || stride < 0) odd(tensor.name, "has a negative size or stride");
            tensor.shape.push_back(size);
            if (size == 0) tensor.numel = 0;
            if (size > 1) tensor.runs.push_back({size, stride});
        }
        if (tensor.offset < 0 || tensor.offset > there) odd(tensor.name, "begins beyond its storage");
        if (tensor.numel == 0) {
            tensor.runs.clear();
            return;
        }
        std::stable_sort(tensor.runs.begin(), tensor.runs.end(), [](auto& a, auto& b) { return a.step > b.step; });
        std::int64_t extent = 1;
        for (std::size_t i = tensor.runs.size(); i-- > 0;) {
            const auto [count, step] = tensor.runs[i];
            check<IoError>(step >= extent,
                           "{}: the tensor {} lies in its own elements several times (expand); save "
                           "tensor.contiguous() instead",
                           source_, Quoted{tensor.name});
            if (count - 1 > (there - extent) / step) odd(tensor.name, "reaches beyond its storage");
            extent += (count - 1) * step;
            tensor.numel *= count;
        }
        if (extent > there - tensor.offset) odd(tensor.name, "reaches beyond its storage");
        if (extent == tensor.numel) tensor.runs = {{tensor.numel, 1}};
    }

    const Pickle& pickle_;
    std::size_t steps_left_;
    const std::string& source_;
    std::map<std::string, const ZipMember*, std::less<>> storages_;
    std::vector<TorchTensor> found_;
};

const ZipMember* find_pickle(const std::vector<ZipMember>& members) {
    const auto found = std::ranges::find_if(members, [](const ZipMember& member) {
        return member.name == "data.pkl" ||
               (member.name.ends_with("/data.pkl") && std::ranges::count(member.name, '/') == 1);
    });
    return found == members.end() ? nullptr : &*found;
}

std::string read_whole(const ZipMember& member, const ReadAt& read, const std::string& source) {
    check<IoError>(member.size <= kMostPickle, "{}: {} in it has {} bytes, more than the {} of any file of tensors",
                   source, Quoted{member.name}, member.size, kMostPickle);
    std::string bytes;
    ZipStream stream(member, read, source);
    // Grown by what comes, not by what is claimed.
    char piece[1 << 14];
    while (const std::size_t count = stream.read(piece, sizeof piece)) bytes.append(piece, count);
    return bytes;
}

}  // namespace

bool TorchTensor::fills_storage() const {
    return offset == 0 && runs.size() <= 1 && std::uint64_t(numel) * width == storage->size &&
           (runs.empty() || runs[0].step == 1);
}

bool TorchFile::is_one(const std::vector<ZipMember>& members) {
    return find_pickle(members) != nullptr;
}

TorchFile::TorchFile(ReadAt read, std::vector<ZipMember> members, std::uint64_t bytes, std::string source)
    : read_(std::move(read)), source_(std::move(source)), members_(std::move(members)) {
    const ZipMember* const data = find_pickle(members_);
    check<IoError>(data != nullptr, "{}: a zip archive without data.pkl, and so no file of torch.save", source_);
    const std::string root = data->name.substr(0, data->name.size() - std::string_view("data.pkl").size());
    for (const ZipMember& member : members_)
        if (member.name == root + "byteorder")
            check<IoError>(read_whole(member, read_, source_) == "little",
                           "{}: its tensors are big-endian; save it on a machine that is not", source_);
    const std::string pickled = read_whole(*data, read_, source_);
    const Pickle pickle(pickled, source_, knows);
    tensors_ = Collector(pickle, pickled.size(), root, members_, source_).run();
    std::uint64_t claimed = 0;
    for (const TorchTensor& tensor : tensors_) {
        claimed += std::uint64_t(tensor.numel) * tensor.width;
        check<IoError>(claimed / kMostSharing <= bytes + (1 << 20),
                       "{}: its tensors lie in the same bytes more than {} times over; save them one by one", source_,
                       kMostSharing);
    }
}

}  // namespace invar
