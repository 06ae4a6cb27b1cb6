#include "invar/train/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "invar/core/error.h"
#include "invar/core/promised.h"
#include "invar/hub/weight_files.h"
#include "invar/nn/mismatch.h"
#include "invar/train/find_checkpoint.h"
#include "invar/train/run_folder.h"
#include "invar/train/snapshot.h"

namespace invar {

namespace {

// A folder of Hugging Face's may lie in one folder with checkpoints.
bool is_run(const std::filesystem::path& path) {
    std::error_code ignored;
    return RunFolder::is_run(path) && !std::filesystem::exists(path / "config.json", ignored);
}

// The tensors of files that stand for each of the model: one, or several that must be the same.
using Sources = std::map<std::string, std::vector<WeightFiles::Place>>;

// "backbone", "decoder": where the names of its tensors begin.
std::set<std::string> modules_of(Module& model) {
    std::set<std::string> names;
    for (const auto& [name, entry] : model.state_entries()) names.insert(name.substr(0, name.find('.')));
    return names;
}

// What of the model is read from files: all but what stays fresh.
std::map<std::string, Module::StateEntry> entries_to_read(Module& model, const std::vector<std::string>& fresh) {
    std::map<std::string, Module::StateEntry> own = model.state_entries();
    for (const std::string& pattern : fresh) {
        std::size_t left_out = 0;
        for (const auto& [name, entry] : model.state_entries()) left_out += matches_parameter(pattern, name);
        check<UsageError>(left_out > 0, "init_fresh: the model has no '{}'; it has {}", pattern,
                          fmt::join(modules_of(model), ", "));
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

// The names of the tensors that count, in their files and for the model: all of them as they are, but of a checkpoint.
std::map<std::string, std::string> names_in(const WeightFiles& files) {
    std::vector<std::string> all;
    bool checkpoint = false;
    for (const WeightFiles::Place& place : files.tensors()) {
        all.push_back(place.entry->name);
        checkpoint = checkpoint || is_checkpoint(place.file->metadata());
    }
    if (checkpoint) return model_weight_names(all);
    std::map<std::string, std::string> names;
    for (const std::string& name : all) names.emplace(name, name);
    return names;
}

Sources match(Module& model, const WeightFiles& files, const std::vector<std::string>* init_fresh) {
    const std::map<std::string, std::string> names = names_in(files);
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
        const auto counts = names.find(entry.name);
        const std::string name = counts == names.end() ? "" : model.own_name(counts->second);
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

// What nobody has read yet is read from the file in its place, when somebody asks for it. It has been read once, and so
// is known to be whole.
void read_later(Parameter& parameter, std::shared_ptr<const WeightFiles> files, const WeightFiles::Place& place) {
    const bool learns = parameter.value.requires_grad();
    parameter.value = deferred_tensor(
        parameter.value.shape(), parameter.value.dtype(),
        [files, place, layout = parameter.layout](const Tensor& value) { from_file(place.read(), value, layout); });
    parameter.value.set_requires_grad(learns);
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace

void load_weights(Module& model, const std::filesystem::path& path, const std::vector<std::string>* fresh) {
    const auto files =
        std::make_shared<const WeightFiles>(is_run(path) ? find_whole_checkpoint(path, "last").path : path);
    try {
        const Sources sources = match(model, *files, fresh);
        const PurposeScope purpose(Purpose::data);
        std::map<std::string, Parameter*> parameters;
        for (Parameter* parameter : model.parameters()) parameters.emplace(parameter->name, parameter);
        for (const auto& [name, places] : sources) {
            const Tensor weight = places[0].read();
            for (std::size_t i = 1; i < places.size(); ++i)
                check(same_bytes(weight, places[i].read()), "{} and {} differ, and are one tensor of this model",
                      Quoted{places[0].entry->name}, Quoted{places[i].entry->name});
            const auto own = parameters.find(name);
            if (own != parameters.end() && is_deferred(own->second->value))
                read_later(*own->second, files, places[0]);
            else
                model.load_state_dict({{name, weight}}, false);
        }
    } catch (const IoError&) {
        throw;  // names the file already
    } catch (const UsageError&) {
        throw;  // of what was asked for, not of the file
    } catch (const Error& error) {
        fail("{}: {}", path.string(), error.what());
    }
}

}  // namespace invar
