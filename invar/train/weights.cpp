#include "invar/train/weights.h"

#include "invar/core/error.h"
#include "invar/io/safetensors.h"

namespace invar {

namespace {

// Names that are missing in the file cost nothing to find out later.
void check_fits(Module& model, const SafetensorsFile& file) {
    const StateDict own = model.state_dict();
    for (const TensorEntry& entry : file.entries()) {
        const auto found = own.find(entry.name);
        check(found != own.end(), "these weights are of another model: unexpected {} of shape {} ({} bytes)",
              Quoted{entry.name}, entry.shape.str(), entry.end - entry.begin);
        check(found->second.shape() == entry.shape, "these weights are of another model: {} is {} and should be {}",
              entry.name, entry.shape.str(), found->second.shape().str());
    }
}

}  // namespace

void load_weights(Module& model, const std::filesystem::path& path) {
    const SafetensorsFile file(path);
    try {
        check_fits(model, file);
        StateDict weights;
        const PurposeScope purpose(Purpose::data);
        for (const TensorEntry& entry : file.entries()) weights.emplace(entry.name, file.tensor(entry.name));
        model.load_state_dict(weights);
    } catch (const IoError&) {
        throw;  // names the file already
    } catch (const Error& error) {
        fail("{}: {}", path.string(), error.what());
    }
}

}  // namespace invar
