#include "invar/train/wandb.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "invar/config/table.h"
#include "invar/io/file.h"
#include "invar/train/logged_names.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// A value of the configuration as JSON has it: true, 3 and 0.5 as such, all else as text.
void add_value(JsonLine& line, const std::string& key, const std::string& text) {
    const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    if (value.is_boolean())
        line.add(key, value.get<bool>());
    else if (value.is_number_integer())
        line.add(key, value.get<std::int64_t>());
    else if (value.is_number())
        line.add(key, value.get<double>());
    else
        line.add(key, text);
}

std::string first_line(const Config& config) {
    JsonLine all, line;
    for (const Field& field : config_fields())
        if (field.applies(config)) add_value(all, field.key, field.print(config));
    line.add("project", config.logger.wandb_project).add("name", config.exp_name).add("config", all);
    return line.text() + "\n";
}

// Lines of steps until this one, with the validation at it or without.
std::string lines_until(const fs::path& path, std::int64_t step, bool validated) {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return "";
    const std::string content = read_file(path);
    std::string kept;
    for (std::size_t begin = 0, end = 0; begin < content.size(); begin = end + 1) {
        end = std::min(content.find('\n', begin), content.size());
        const std::string_view text = std::string_view(content).substr(begin, end - begin);
        const nlohmann::json line = parse_object(text);
        if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
        const auto at = line["step"].get<std::int64_t>();
        if (at > step || (at == step && !validated && line.contains(logged::of_validation("loss")))) continue;
        kept.append(text).push_back('\n');
    }
    return kept;
}

}  // namespace

WandbFile::WandbFile(const fs::path& folder, const Config& config) : first_line_(first_line(config)) {
    const fs::path path = folder / kName;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) write_file_atomically(path, first_line_);
    file_.emplace(path);
}

void WandbFile::rewind(const fs::path& folder, std::int64_t step, bool validated) {
    const fs::path path = folder / kName;
    pending_.reset();
    file_.reset();
    write_file_atomically(path, first_line_ + lines_until(path, step, validated));
    file_.emplace(path);
}

void WandbFile::scalar(std::string_view tag, std::int64_t step, double value) {
    if (pending_ && step != step_) flush();
    if (!pending_) pending_.emplace().add("step", step);
    step_ = step;
    pending_->add(tag, value);
}

void WandbFile::flush() {
    if (pending_) file_->write(*pending_);
    pending_.reset();
}

void WandbFile::sync() {
    flush();
    file_->sync();
}

}  // namespace invar
