#include "invar/train/weights.h"

#include <cstring>
#include <vector>

#include "invar/core/error.h"
#include "invar/hub/weight_files.h"
#include "invar/nn/mismatch.h"

namespace invar {

namespace {

// The tensors of files that stand for each of the model: one, or several that must be the same.
using Sources = std::map<std::string, std::vector<WeightFiles::Place>>;

Sources match(Module& model, const WeightFiles& files) {
    WeightMismatch mismatch;
    const std::map<std::string, Module::StateEntry> own = model.state_entries();
    Sources sources;
    for (const WeightFiles::Place& place : files.tensors()) {
        const TensorEntry& entry = *place.entry;
        const std::string name = model.own_name(entry.name);
        if (name.empty()) continue;
        const auto found = own.find(name);
        if (found == own.end()) {
            mismatch.unexpected.push_back(fmt::format("{} of shape {} ({} bytes)", Quoted{entry.name},
                                                      entry.shape.str(), entry.end - entry.begin));
            continue;
        }
        const auto& [shape, dtype] = found->second;
        if (shape != entry.shape) mismatch.add_misshapen(entry.name, entry.shape, shape);
        if (is_floating(dtype) && !is_floating(entry.dtype))
            mismatch.unusable.push_back(fmt::format("{} is of {}", entry.name, name_of(entry.dtype)));
        sources[name].push_back(place);
    }
    for (const auto& [name, entry] : own)
        if (!sources.contains(name)) mismatch.missing.push_back(name);
    check(mismatch.empty(), "{}", mismatch.str());
    return sources;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace

void load_weights(Module& model, const std::filesystem::path& path) {
    const WeightFiles files(path);
    try {
        const Sources sources = match(model, files);
        const PurposeScope purpose(Purpose::data);
        for (const auto& [name, places] : sources) {
            const Tensor weight = places[0].read();
            for (std::size_t i = 1; i < places.size(); ++i)
                check(same_bytes(weight, places[i].read()), "{} and {} differ, and are one tensor of this model",
                      Quoted{places[0].entry->name}, Quoted{places[i].entry->name});
            model.load_state_dict({{name, weight}}, false);
        }
    } catch (const IoError&) {
        throw;  // names the file already
    } catch (const Error& error) {
        fail("{}: {}", path.string(), error.what());
    }
}

}  // namespace invar
