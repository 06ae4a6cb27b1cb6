#include "invar/cli/others_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "invar/config/keys.h"
#include "invar/config/others_keys.h"
#include "invar/core/shell.h"

namespace invar::cli {
namespace {

// Names that no key has, and no alias.
struct Other {
    std::string_view name, key;
};
constexpr Other kOthers[] = {
    {"workers", "data.num_workers"},
    {"j", "data.num_workers"},
    {"b", "data.batch_size"},
    {"bs", "data.batch_size"},
    {"train_batch_size", "data.batch_size"},
    {"num_epochs", "trainer.max_epochs"},
    {"num_train_epochs", "trainer.max_epochs"},
    {"e", "trainer.max_epochs"},
    {"steps", "trainer.max_steps"},
    {"wd", "optimizer.weight_decay"},
    {"clip_grad", "trainer.gradient_clip_val"},
    {"arch", "model"},
    {"a", "model"},
    {"opt", "optimizer"},
    {"dataset", "data"},
    {"sched", "scheduler"},
    {"name", "exp_name"},
    {"output", "output_dir"},
    {"model_ema_decay", "trainer.ema_decay"},
};

}  // namespace

std::string advice_on_option(const std::string& flag, const std::string& value) {
    std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    std::ranges::replace(name, '-', '_');
    const auto write = [&](std::string_view key, std::string_view placeholder) {
        return "write " +
               (value.empty() ? fmt::format("{}={}", key, placeholder) : shell_word(fmt::format("{}={}", key, value)));
    };
    for (const Other& other : kOthers)
        if (name == other.name) return write(other.key, other.key.find('.') == other.key.npos ? "NAME" : "VALUE");
    const std::vector<std::string>& sections = config_sections();
    if (std::ranges::find(sections, name) != sections.end()) return write(name, "NAME");
    if (const std::string key = key_meant_by(name); !key.empty()) return write(key, "VALUE");
    if (name == "config" || name == "cfg")
        return "write the configuration without an option" + (value.empty() ? "" : ": " + shell_word(value));
    if (name == "ckpt_path" || name == "resume_from_checkpoint") return "use --resume with the folder of the run";
    return std::string(advice_on(name));
}

}  // namespace invar::cli
