#include "invar/train/weights.h"

#include <cstring>
#include <vector>

#include "invar/core/error.h"
#include "invar/io/safetensors.h"
#include "invar/nn/mismatch.h"

namespace invar {

namespace {

// The tensors of the file that stand for each of the model, of which there is one where the file is as it should be.
using Sources = std::map<std::string, std::vector<const TensorEntry*>>;

Sources match(Module& model, const SafetensorsFile& file) {
    WeightMismatch mismatch;
    const std::map<std::string, Module::StateEntry> own = model.state_entries();
    Sources sources;
    for (const TensorEntry& entry : file.entries()) {
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
        sources[name].push_back(&entry);
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
    const SafetensorsFile file(path);
    try {
        const Sources sources = match(model, file);
        const PurposeScope purpose(Purpose::data);
        for (const auto& [name, entries] : sources) {
            const Tensor weight = file.tensor(entries[0]->name);
            for (std::size_t i = 1; i < entries.size(); ++i)
                check(same_bytes(weight, file.tensor(entries[i]->name)),
                      "{} and {} differ, and are one tensor of this model", Quoted{entries[0]->name},
                      Quoted{entries[i]->name});
            model.load_state_dict({{name, weight}}, false);
        }
    } catch (const IoError&) {
        throw;  // names the file already
    } catch (const Error& error) {
        fail("{}: {}", path.string(), error.what());
    }
}

}  // namespace invar
