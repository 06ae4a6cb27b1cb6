#include "invar/cli/saved.h"

#include "invar/core/error.h"
#include "invar/train/run_folder.h"
#include "invar/train/snapshot.h"
#include "invar/train/weights.h"

namespace invar::cli {

namespace fs = std::filesystem;

Saved read_saved(const fs::path& target, const ConfigArguments& arguments, const std::string& which) {
    const std::string config = arguments.config();
    check<UsageError>(config.empty(), "{} brings its configuration; leave out '{}' and set keys as key=value",
                      target.string(), config);
    Saved saved;
    std::error_code error;
    if (fs::is_directory(target, error)) {
        check<UsageError>(RunFolder::is_run(target), "{}: not the folder of a run: it has no config.yaml",
                          target.string());
        const LatestCheckpoint found = find_checkpoint_and_warn(target, which.empty() ? "last" : which);
        saved = {found.path.string(), arguments.load_run(target), load_checkpoint(found.path)};
    } else {
        check<UsageError>(which.empty(), "--checkpoint names one of a run; {} is a file", target.string());
        saved.name = target.string();
        saved.checkpoint = load_checkpoint(target);
        const auto own = saved.checkpoint->state.find("config");
        check<IoError>(own != saved.checkpoint->state.end() && own->is_string(),
                       "{}: the checkpoint holds no configuration", target.string());
        saved.config = arguments.load_over_text(own->get<std::string>());
    }
    saved.config.init_from.clear();
    return saved;
}

void load_saved(Module& model, const Saved& saved) {
    if (!saved.checkpoint) return load_weights(model, saved.name);
    try {
        model.load_state_dict(model_weights(*saved.checkpoint));
    } catch (const Error& error) {
        fail("{}: {}", saved.name, error.what());
    }
}

}  // namespace invar::cli
