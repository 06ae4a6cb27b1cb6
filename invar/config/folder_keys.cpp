#include "invar/config/folder_keys.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

namespace fs = std::filesystem;

std::string folder_in(const std::vector<Setting>& files, const std::vector<Setting>& words) {
    std::string folder;
    for (const std::vector<Setting>* settings : {&files, &words})
        for (const Setting& setting : *settings)
            if (setting.key == "init_from") folder = setting.value.text;
    // The folder of a run has weights alone to give: what they are of, the configuration says.
    std::error_code ignored;
    const bool run =
        fs::exists(fs::path(folder) / "config.yaml", ignored) && !fs::exists(fs::path(folder) / "config.json", ignored);
    return fs::is_directory(folder, ignored) && !run ? folder : "";
}

Setting setting_of(const FolderKey& known, const std::string& origin) {
    YamlNode value;
    value.kind = YamlNode::Kind::scalar;
    value.text = known.value;
    return {known.key, "", value, origin, false, known.kind == FolderKey::Kind::start};
}

std::string printed(const Config& config, const std::string& key) {
    for (const Field& field : config_fields())
        if (field.key == key && field.applies(config)) return field.print(config);
    return "";
}

// What the words say of keys that the folder knows is tried on the folder's model alone, where nothing else is wrong.
void check_words(const std::vector<Setting>& words, const std::vector<FolderKey>& known,
                 const std::vector<Setting>& decided, const std::string& folder) {
    Config chosen, as_folder;
    Origins origins;
    apply(decided, as_folder, origins);
    const auto names_model = [](const Setting& setting) { return setting.key == "model.name"; };
    std::vector<Setting> names;
    std::ranges::copy_if(words, std::back_inserter(names), names_model);
    apply(names, chosen, origins);
    check<UsageError>(names.empty() || chosen.model.name() == as_folder.model.name(),
                      "model.name = {} ({}): init_from={} holds weights of the model {}; leave it out",
                      chosen.model.name(), names.empty() ? "" : names.back().origin, folder, as_folder.model.name());
    for (const FolderKey& key : known) {
        const auto said =
            std::find_if(words.rbegin(), words.rend(), [&](const Setting& setting) { return setting.key == key.key; });
        if (key.kind == FolderKey::Kind::start || said == words.rend() || names_model(*said)) continue;
        Config asked = as_folder;
        apply({*said}, asked, origins);
        const std::string theirs = printed(as_folder, key.key), ours = printed(asked, key.key);
        if (ours == theirs) continue;
        if (key.kind == FolderKey::Kind::at_most) {
            const std::int64_t value = std::stoll(ours);
            check<UsageError>(value >= 1 && value <= std::stoll(theirs),
                              "{} = {} ({}): init_from={} holds weights of a model of {}; it must be from 1 to {}",
                              key.key, ours, said->origin, folder, theirs, theirs);
        } else {
            fail<UsageError>("{} = {} ({}): init_from={} holds weights of a model of {}; leave it out", key.key, ours,
                             said->origin, folder, theirs);
        }
    }
}

}  // namespace

std::vector<Setting> with_folder_keys(std::vector<Setting> files, const std::vector<Setting>& words,
                                      const ConfigSources& sources) {
    const std::string folder = folder_in(files, words);
    std::vector<Setting> all;
    if (!folder.empty() && sources.folder_keys) {
        const std::vector<FolderKey> known = sources.folder_keys(folder);
        std::vector<Setting> decided;
        for (const FolderKey& key : known)
            (key.kind == FolderKey::Kind::start ? all : decided).push_back(setting_of(key, folder));
        check_words(words, known, decided, folder);
        files.insert(files.end(), decided.begin(), decided.end());
    }
    all.insert(all.end(), files.begin(), files.end());
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

}  // namespace invar
