// Files as torch.save makes them, and pickles that no PyTorch would make.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/data/zip_bytes.h"

namespace invar::testing {

inline std::string pickled(const std::string& text) {
    return "X" + little(text.size(), 4) + text;
}
inline std::string pickled(std::int64_t value) {
    return "\x8a\x08" + little(std::uint64_t(value), 8);
}
inline std::string global(const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
}
inline std::string tuple_of(const std::vector<std::int64_t>& values) {
    std::string all = "(";
    for (const std::int64_t value : values) all += pickled(value);
    return all + "t";
}
// A call of torch._utils._rebuild_tensor_v2.
inline std::string tensor_pickle(const std::string& key, std::int64_t offset, const std::vector<std::int64_t>& sizes,
                                 const std::vector<std::int64_t>& strides, const std::string& type = "FloatStorage") {
    return global("torch._utils", "_rebuild_tensor_v2") + "((" + pickled("storage") + global("torch", type) +
           pickled(key) + pickled("cpu") + pickled(std::int64_t(0)) + "tQ" + pickled(offset) + tuple_of(sizes) +
           tuple_of(strides) + "\x89" + global("collections", "OrderedDict") + ")RtR";
}
inline std::string dict_of(const std::vector<std::pair<std::string, std::string>>& items) {
    std::string all = "}(";
    for (const auto& [key, value] : items) all += pickled(key) + value;
    return all + "u";
}
template <class T>
std::string raw_bytes(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
// The archive around a pickle, whose one storage "0" holds these bytes.
inline std::string torch_bytes(const std::string& pickle, const std::string& storage) {
    return ZipMaker()
        .add("m/data.pkl", "\x80\x02" + pickle + ".")
        .add("m/data/0", storage)
        .add("m/version", "3\n")
        .bytes();
}

}  // namespace invar::testing
