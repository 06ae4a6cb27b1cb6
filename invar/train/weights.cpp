#include "invar/train/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "invar/core/error.h"
#include "invar/hub/weight_files.h"
#include "invar/nn/mismatch.h"

namespace invar {

namespace {

// The tensors of files that stand for each of the model: one, or several that must be the same.
using Sources = std::map<std::string, std::vector<WeightFiles::Place>>;

// What of the model is read from files: all but what stays fresh.
std::map<std::string, Module::StateEntry> entries_to_read(Module& model, const std::vector<std::string>& fresh) {
    std::map<std::string, Module::StateEntry> own = model.state_entries();
    for (const std::string& pattern : fresh) {
        std::size_t left_out = 0;
        for (const auto& [name, entry] : model.state_entries()) left_out += matches_parameter(pattern, name);
        check<UsageError>(left_out > 0, "init_fresh: the model has no '{}'", pattern);
        std::erase_if(own, [&](const auto& entry) { return matches_parameter(pattern, entry.first); });
    }
    return own;
}

// Files of PyTorch before 0.4.1 do not count the batches of a norm.
bool may_be_missing(const std::string& name) {
    return name.ends_with(".num_batches_tracked");
}

// How to go on where the files fit but for a few: "; init_fresh=[fc] begins with fresh ones there". A module is named
// where nothing of it fits, and otherwise the tensor.
std::string advice(const std::set<std::string>& misfits, const Sources& sources) {
    constexpr std::size_t kFew = 4;
    std::set<std::string> fresh;
    for (const std::string& name : misfits) {
        const std::string module = name.substr(0, name.find('.'));
        const bool some_fit = std::ranges::any_of(sources, [&](const auto& source) {
            return source.first.starts_with(module + ".") && !misfits.contains(source.first);
        });
        fresh.insert(some_fit ? name : module);
    }
    const bool any_fits = std::ranges::any_of(sources, [&](const auto& s) { return !misfits.contains(s.first); });
    if (!any_fits || fresh.size() > kFew) return "";
    return fmt::format("; init_fresh=[{}] begins with fresh ones there", fmt::join(fresh, ","));
}

Sources match(Module& model, const WeightFiles& files, const std::vector<std::string>* init_fresh) {
    WeightMismatch mismatch;
    const std::vector<std::string> fresh = init_fresh != nullptr ? *init_fresh : std::vector<std::string>{};
    const std::map<std::string, Module::StateEntry> own = entries_to_read(model, fresh);
    Sources sources;
    std::set<std::string> misfits;  // missing or of another shape
    const auto stays_fresh = [&](const std::string& name) {
        return std::ranges::any_of(fresh, [&](const auto& pattern) { return matches_parameter(pattern, name); });
    };
    for (const WeightFiles::Place& place : files.tensors()) {
        const TensorEntry& entry = *place.entry;
        const std::string name = model.own_name(entry.name);
        if (name.empty() || stays_fresh(name)) continue;
        const auto found = own.find(name);
        if (found == own.end()) {
            mismatch.unexpected.push_back(fmt::format("{} of shape {} ({} bytes)", Quoted{entry.name},
                                                      entry.shape.str(), entry.end - entry.begin));
            continue;
        }
        const auto& [shape, dtype] = found->second;
        if (shape != entry.shape) mismatch.add_misshapen(entry.name, entry.shape, shape), misfits.insert(name);
        if (is_floating(dtype) && !is_floating(entry.dtype))
            mismatch.unusable.push_back(fmt::format("{} is of {}", entry.name, name_of(entry.dtype)));
        sources[name].push_back(place);
    }
    for (const auto& [name, entry] : own)
        if (!sources.contains(name) && !may_be_missing(name)) mismatch.missing.push_back(name), misfits.insert(name);
    const bool advised = init_fresh != nullptr && mismatch.unexpected.empty() && mismatch.unusable.empty();
    check(mismatch.empty(), "{}{}", mismatch.str(), advised ? advice(misfits, sources) : std::string());
    return sources;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace

void load_weights(Module& model, const std::filesystem::path& path, const std::vector<std::string>* fresh) {
    const WeightFiles files(path);
    try {
        const Sources sources = match(model, files, fresh);
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
