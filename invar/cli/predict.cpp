// `invar predict`: what the model of a run says of image files.
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "invar/cli/commands.h"
#include "invar/cli/console.h"
#include "invar/cli/saved.h"
#include "invar/cli/signals.h"
#include "invar/cli/start_up.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/shell.h"
#include "invar/data/file_bytes.h"
#include "invar/data/image_files.h"
#include "invar/image/encode.h"
#include "invar/io/file.h"
#include "invar/kernels/devices.h"
#include "invar/ops/to.h"
#include "invar/tasks/prediction.h"
#include "invar/tasks/registry.h"
#include "invar/train/review.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

struct PredictArguments : ConfigArguments {
    std::string checkpoint, out = "predictions";
    bool json = false;
};

// Names of files need not be UTF-8.
std::string text_of(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The words that are no keys: the run, then images and folders of them. A file that is there is no key, whatever it is
// called.
std::vector<fs::path> take_paths(PredictArguments& arguments) {
    std::vector<fs::path> paths;
    std::error_code error;
    std::erase_if(arguments.words, [&](const std::string& word) {
        const bool path = !is_override(word) || fs::exists(word, error);
        if (path) paths.emplace_back(word);
        return path;
    });
    check<UsageError>(paths.size() > 1,
                      "say which run, and which images or folders of them, as in: {} predict runs/dbnet sign.jpg",
                      program_name());
    for (const fs::path& path : paths)
        check<UsageError>(fs::exists(path, error), "{}: there is no such file or folder", path.string());
    return paths;
}

std::vector<fs::path> images_among(const std::vector<fs::path>& paths) {
    std::vector<fs::path> images;
    std::error_code error;
    for (const fs::path& path : paths) {
        if (!fs::is_directory(path, error)) {
            images.push_back(path);
            continue;
        }
        const ImageFiles found = image_files_in(path);
        check<UsageError>(!found.files.empty(), "{}: no image in this folder (JPEG, PNG or WebP, by their suffix)",
                          path.string());
        images.insert(images.end(), found.files.begin(), found.files.end());
    }
    return images;
}

// The model of a run, ready to be asked.
class Predictor {
  public:
    explicit Predictor(const Saved& saved)
        : config_(saved.config),
          device_(resolve_device(config_.trainer.device)),
          precision_(config_.trainer.resolved_precision()) {
        precision_.require(device_);
        require_precisions(config_.trainer, device_);
        set_threads(int(config_.trainer.threads));
        task_ = make_task(config_);
        model_ = make_initial_model(*task_, config_);
        load_saved(*model_, saved);
        data_ = task_->data(Split::test);
        check_same_data(*saved.checkpoint, *data_, saved.name);
        model_->to(device_);
    }

    // Throws an IoError where there is no image in the file.
    SeenImage see(const fs::path& file) const {
        const std::string content = read_data_file(file);
        std::optional<SeenImage> seen = data_->see(bytes_of(content), file.string());
        check<UsageError>(seen.has_value(), "data={} has no images, so that its model takes none: a sample is {}",
                          config_.data.name(), data_->info().input.str());
        seen->x = ops::to(seen->x, device_);
        return std::move(*seen);
    }
    ImagePrediction predict(const SeenImage& seen) const {
        const EvaluationScope scope(*model_, precision_);
        std::optional<ImagePrediction> prediction = task_->predict(*model_, seen);
        check<UsageError>(prediction.has_value(), "task={} has nothing to say of an image by itself",
                          config_.task.name());
        return std::move(*prediction);
    }

  private:
    Config config_;
    Device device_;
    Precision precision_;
    std::shared_ptr<const Task> task_;
    std::unique_ptr<Module> model_;
    std::shared_ptr<const Dataset> data_;
};

// What none of the pictures is called yet, nor the image itself, which may lie in the same folder.
std::string picture_name(const fs::path& image, std::set<std::string>& taken) {
    constexpr std::size_t kLongest = 160;  // of 255 bytes: a file has more in its name while it is written
    std::string stem = image.stem().string();
    if (stem.size() > kLongest) {
        stem.resize(kLongest);
        while (!stem.empty() && (stem.back() & 0x80) != 0) stem.pop_back();  // what may be a character cut in two
    }
    std::string name = stem + "-predicted.png";
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}-predicted-{}.png", stem, i);
    return name;
}

// The pictures that the predictions in this folder name: ours, and nobody's else.
std::set<std::string> earlier_pictures(const fs::path& file) {
    std::set<std::string> names;
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return names;
    const Json all = Json::parse(read_data_file(file), nullptr, false);
    if (!all.is_object() || !all.contains("images") || !all["images"].is_array()) return names;
    for (const Json& entry : all["images"])
        if (entry.is_object() && entry.contains("picture") && entry["picture"].is_string())
            if (const std::string name = entry["picture"];
                name.find('/') == name.npos && name.find("-predicted") != name.npos)
                names.insert(name);
    return names;
}

int predict(PredictArguments& arguments) {
    check<UsageError>(!arguments.out.empty(), "--out has no value; name a folder, or leave it out");
    const std::vector<fs::path> paths = take_paths(arguments);
    const fs::path run = paths.front();
    const std::vector<fs::path> images = images_among({paths.begin() + 1, paths.end()});
    const Saved saved = read_saved(run, arguments, arguments.checkpoint);
    const Predictor predictor(saved);
    if (!arguments.json) say_why_on_cpu(saved.config);

    const StopOnSignal signals;
    const fs::path folder = arguments.out;
    std::vector<std::string> entries;  // as JSON
    Table table;
    LiveLine live;
    std::set<std::string> pictures;
    std::size_t broken = 0, unwritten = 0;
    for (std::size_t i = 0; i < images.size() && !StopOnSignal::requested(); ++i) {
        if (!arguments.json && live.due()) live.show({fmt::format("image {} of {}", i + 1, images.size())});
        SeenImage seen;
        try {
            seen = predictor.see(images[i]);
        } catch (const IoError& error) {
            live.clear();
            warn(fmt::format("warning: {}", error.what()));
            ++broken;
            continue;
        }
        const ImagePrediction prediction = predictor.predict(seen);
        Json entry = {{"file", images[i].string()}, {"width", seen.size.width}, {"height", seen.size.height}};
        entry.update(prediction.found);
        if (prediction.picture) {
            const std::string name = picture_name(images[i], pictures);
            try {
                make_folders(folder);
                write_png(folder / name, *prediction.picture);
                entry["picture"] = name;
            } catch (const IoError& error) {  // what was found is still told
                live.clear();
                warn(fmt::format("warning: {}: it has no picture: {}", printable(images[i].string()), error.what()));
                ++unwritten;
            }
        }
        entries.push_back(text_of(entry));
        if (arguments.json) say(entries.back());
        std::vector<std::string> row = {printable(images[i].string())};
        for (const std::string& cell : prediction.cells) row.push_back(printable(cell));
        table.row(row);
    }
    live.clear();
    const fs::path file = folder / "predictions.json";
    if (!entries.empty()) {
        make_folders(folder);
        const std::set<std::string> earlier = earlier_pictures(file);
        write_file_atomically(file, fmt::format("{{\"weights\":{},\"images\":[\n{}\n]}}\n", text_of(saved.name),
                                                fmt::join(entries, ",\n")));
        std::error_code ignored;
        for (const std::string& name : earlier)  // of predictions that are gone now
            if (!pictures.contains(name)) fs::remove(folder / name, ignored);
    }
    if (!arguments.json && !entries.empty()) {
        print(table.text());
        say(fmt::format("{}: {}{}", file.string(), count_of(std::int64_t(entries.size()), "image"),
                        pictures.empty() ? "" : ", with pictures"));
    }
    if (StopOnSignal::requested()) {
        warn(fmt::format("interrupted by {} after {} of {}", StopOnSignal::name(), entries.size() + broken,
                         count_of(std::int64_t(images.size()), "image")));
        return StopOnSignal::exit_code();
    }
    if (broken > 0)
        warn(fmt::format("error: {} of {} cannot be read", broken, count_of(std::int64_t(images.size()), "image")));
    if (unwritten > 0) warn(fmt::format("error: {} cannot be written", count_of(std::int64_t(unwritten), "picture")));
    return broken + unwritten > 0 ? 1 : 0;
}

}  // namespace

void add_predict(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("predict", "Ask the model of a run what it sees in image files");
    auto arguments = std::make_shared<PredictArguments>();
    PredictArguments& a = *arguments;
    a.add_to(*command, "RUN|CHECKPOINT IMAGE|FOLDER ... [key=value ...]",
             "The folder of a run or the file of a checkpoint, and JPEG, PNG or WebP files or folders of them");
    command->add_option("-o,--out,--output", a.out, "Folder for predictions.json and pictures")->option_text("DIR");
    command->add_option("--checkpoint", a.checkpoint, "Which one of a run: last, best or the file of a checkpoint")
        ->type_name("WHICH");
    command->add_flag("--json", a.json, "Print one JSON object a line and image");
    command->footer(
        example({"invar predict runs/dbnet sign.jpg --checkpoint best", "invar predict runs/flowers photos --json",
                 "invar predict runs/dbnet photos -o found task.box_thresh=0.5 trainer.precision=bf16-mixed"}) +
        read_more("IMAGES.md", "tells what is written"));
    command->callback([arguments, &exit_code] { exit_code = predict(*arguments); });
}

}  // namespace invar::cli
