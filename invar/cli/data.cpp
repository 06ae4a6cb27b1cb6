// `invar data`: what a network will see of its images, as a sheet of them with their labels, and figures of the whole.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/data_sheet.h"
#include "invar/cli/data_texts.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/shell.h"
#include "invar/data/icdar.h"
#include "invar/data/image_folder.h"
#include "invar/data/loader.h"
#include "invar/data/mixup.h"
#include "invar/data/registry.h"
#include "invar/image/encode.h"
#include "invar/tasks/registry.h"
#include "invar/tasks/text_detection.h"

namespace invar::cli {

namespace {

struct DataArguments : ConfigArguments {
    std::string output, split = "train";
    std::int64_t count = 24, samples = 2000, epoch = 1;
};

using Data = std::shared_ptr<const Dataset>;

// What was found in the samples that were looked at, as they are without augmentation.
struct Findings {
    std::int64_t looked = 0;
    std::map<std::int64_t, std::int64_t> labels;
    std::vector<double> sum, squares;  // of pixels in [0, 1], for each channel
    double pixels = 0;
    std::map<std::int64_t, std::string> broken;  // by sample
    std::vector<ImageSize> sizes;                // as stored, where they are files

    void add(const Batch& batch, const PixelScale& scale, std::optional<ImageSize> stored) {
        ++looked;
        if (stored) sizes.push_back(*stored);
        if (batch.has("y") && batch["y"].dtype() == Dtype::i64 && batch["y"].numel() == batch.size)
            for (const std::int64_t label : batch["y"].to_vector<std::int64_t>()) ++labels[label];
        const std::size_t channels = scale.mean.size();
        sum.resize(channels), squares.resize(channels);
        const std::vector<float> x = batch["x"].to_vector<float>();
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % channels;
            const double value = double(x[i]) * scale.std[c] + scale.mean[c];
            sum[c] += value, squares[c] += value * value;
        }
        pixels += double(x.size()) / double(channels);
    }
};

// Of the image behind a sample, where there is one that is not what the network sees.
std::optional<ImageSize> stored_size(const Dataset& data, std::int64_t sample) {
    if (const auto* folder = dynamic_cast<const ImageFolderDataset*>(&data)) return folder->stored_size(sample);
    if (const auto* texts = dynamic_cast<const IcdarDataset*>(&data)) return texts->load(sample).image.size();
    return std::nullopt;
}

// Spread over the set where it has more than are looked at.
Findings look_at(const Dataset& data, std::int64_t most, int threads, LiveLine& live) {
    const PixelScale scale = *data.pixels();
    const std::int64_t count = std::min(most, data.size());
    std::atomic<std::int64_t> next = 0;
    std::mutex mutex;
    std::vector<Findings> found(static_cast<std::size_t>(threads));
    const auto work = [&](std::size_t thread) {
        Findings& mine = found[thread];
        for (std::int64_t i = next++; i < count; i = next++) {
            const std::int64_t sample = std::int64_t(double(i) * double(data.size()) / double(count));
            try {
                mine.add(data.read(std::span(&sample, 1)), scale, stored_size(data, sample));
            } catch (const Error& error) {
                mine.broken.emplace(sample, error.what());
            }
            const std::lock_guard lock(mutex);
            if (live.due()) live.show({fmt::format("reading {} of {}", i + 1, count)});
        }
    };
    {
        std::vector<std::jthread> helpers;
        for (int i = 1; i < threads; ++i) helpers.emplace_back(work, std::size_t(i));
        work(0);
    }
    live.clear();
    Findings all = std::move(found[0]);
    all.sum.resize(scale.mean.size()), all.squares.resize(scale.mean.size());
    for (std::size_t i = 1; i < found.size(); ++i) {
        const Findings& part = found[i];
        all.looked += part.looked, all.pixels += part.pixels;
        for (const auto& [label, samples] : part.labels) all.labels[label] += samples;
        for (std::size_t c = 0; c < part.sum.size(); ++c) all.sum[c] += part.sum[c], all.squares[c] += part.squares[c];
        all.broken.insert(part.broken.begin(), part.broken.end());
        all.sizes.insert(all.sizes.end(), part.sizes.begin(), part.sizes.end());
    }
    return all;
}

void print_splits(const Config& config, const std::map<Split, Data>& splits) {
    Table table({"split", "samples", "height", "width", "channels", "classes"});
    for (const auto& [split, data] : splits) {
        const DataInfo info = data->info();
        table.row({split == Split::train ? "train" : "val", human_count(data->size()), std::to_string(info.input[0]),
                   std::to_string(info.input[1]), std::to_string(info.input[2]),
                   data->class_names().empty() && info.outputs <= 1 ? "-" : human_count(info.outputs)});
    }
    say(paint(Colour::bold, config.data.name()));
    print(table.text("  "));
    for (const auto& [split, data] : splits)
        for (const std::string& note : data->notes()) say(note);
}

// Of all samples where the labels are known without reading them, else of those that were looked at.
void print_classes(const Findings& found, const Dataset& data) {
    if (found.labels.empty()) return;
    constexpr std::size_t kShown = 10;
    std::map<std::int64_t, std::int64_t> counts = found.labels;
    std::int64_t counted = found.looked;
    if (const auto* folder = dynamic_cast<const ImageFolderDataset*>(&data)) {
        counts.clear();
        for (const std::int64_t label : folder->labels()) ++counts[label];
        counted = folder->size();
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> classes(counts.begin(), counts.end());
    std::ranges::stable_sort(classes, [](const auto& a, const auto& b) { return a.second > b.second; });
    const std::vector<std::string> names = data.class_names();
    Table table({"class", "samples", "share"});
    for (std::size_t i = 0; i < std::min(kShown, classes.size()); ++i) {
        const auto [label, samples] = classes[i];
        table.row({label < std::int64_t(names.size()) ? printable(names[std::size_t(label)]) : std::to_string(label),
                   human_count(samples), fmt::format("{:.1f}%", 100.0 * double(samples) / double(counted))});
    }
    print(table.text("  "));
    if (classes.size() > kShown)
        say(fmt::format("  and {} more with {} to {} samples", human_count(std::int64_t(classes.size() - kShown)),
                        human_count(classes.back().second), human_count(classes[kShown].second)));
    const std::int64_t missing = data.info().outputs - std::int64_t(classes.size());
    if (missing > 0)
        say(fmt::format("  {} of {} classes have no sample among the {} counted", human_count(missing),
                        human_count(data.info().outputs), human_count(counted)));
}

void print_sizes(std::vector<ImageSize> sizes) {
    if (sizes.empty()) return;
    const auto text = [](const ImageSize& size) { return fmt::format("{} x {}", size.width, size.height); };
    std::ranges::sort(sizes, {}, [](const ImageSize& s) { return std::pair(s.height * s.width, s.width); });
    say(fmt::format("files: {} to {} pixels (width x height), half of them at most {}", text(sizes.front()),
                    text(sizes.back()), text(sizes[(sizes.size() - 1) / 2])));
}

std::string numbers(const std::vector<double>& values) {
    std::vector<std::string> texts;
    for (const double value : values) texts.push_back(fmt::format("{:.3f}", value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
}

// `padded`: what they say is also that of the black around images.
void print_pixels(const Findings& found, const PixelScale& scale, bool padded) {
    if (found.pixels == 0) return;
    std::vector<double> mean, deviation;
    for (std::size_t c = 0; c < found.sum.size(); ++c) {
        mean.push_back(found.sum[c] / found.pixels);
        deviation.push_back(std::sqrt(std::max(0.0, found.squares[c] / found.pixels - mean[c] * mean[c])));
    }
    say(fmt::format("pixels{}: mean {}, std {}; normalised by mean {}, std {}", padded ? " with the padding" : "",
                    numbers(mean), numbers(deviation), numbers(scale.mean), numbers(scale.std)));
}

void print_broken(const Findings& found) {
    if (found.broken.empty()) return;
    constexpr std::size_t kShown = 5;
    warn(fmt::format("warning: {} cannot be read:", count_of(std::int64_t(found.broken.size()), "sample")));
    std::size_t shown = 0;
    for (const auto& [sample, why] : found.broken)
        if (shown++ < kShown) warn("  " + why);
    if (found.broken.size() > kShown) warn(fmt::format("  and {} more", found.broken.size() - kShown));
}

// The first samples of an epoch as training gets them; of the other split as validation does. Broken ones are passed
// over: they are told of above.
Batch batch_to_show(const Dataset& data, const Config& config, Split split, const DataArguments& a) {
    const auto seed = std::uint64_t(config.seed);
    const bool train = split == Split::train, shuffle = train && config.data.shuffle;
    const std::vector<std::int64_t> order =
        shuffle ? shuffled_order(data.size(), seed, a.epoch - 1) : std::vector<std::int64_t>();
    std::vector<std::int64_t> chosen;
    std::string why;
    // Samples are mixed with others of their batch: that is read whole, and no other is shown.
    const bool mixes = train && config.data.mixup > 0;
    const std::int64_t wanted = mixes ? config.data.batch_size : a.count;
    for (std::int64_t i = 0; i < data.size() && std::int64_t(chosen.size()) < wanted; ++i) {
        const std::int64_t sample = shuffle ? order[std::size_t(i)] : i;
        try {
            (void)data.read_for({a.epoch - 1}, std::span(&sample, 1));
            chosen.push_back(sample);
        } catch (const Error& error) {
            why = error.what();
        }
    }
    check<IoError>(!chosen.empty(), "no sample can be shown: {}", why);
    Batch batch = data.read_for({a.epoch - 1}, chosen);
    if (!mixes) return batch;
    mix_pairs(batch, {config.data.mixup, data.info().outputs}, seed, a.epoch - 1, 0);
    return batch.head(a.count);
}

void check_images(const Dataset& data) {
    const DataInfo info = data.info();
    check<UsageError>(data.pixels() && info.input.rank() == 3,
                      "data={} has no images to show: a sample is {}; `{} check` tells of any data", data.name(),
                      info.input.str(), program_name());
}

void data_command(const DataArguments& a) {
    check<UsageError>(a.split == "train" || a.split == "val", "--split {}: there are train and val", a.split);
    const Config config = a.load();
    const Split wanted = a.split == "train" ? Split::train : Split::test;
    std::map<Split, Data> splits;
    for (const Split split : {Split::train, Split::test}) {
        splits[split] = open_data(config.data, split, config.data_seed());
        check_images(*splits[split]);
    }
    const Data& data = splits.at(wanted);
    print_splits(config, splits);

    LiveLine live;
    const int threads = int(std::max<std::int64_t>(1, config.data.num_workers));
    const Findings found = look_at(*data, a.samples, threads, live);
    say(fmt::format("{} of {} to {} looked at", human_count(found.looked), count_of(data->size(), "sample"),
                    wanted == Split::train ? "train on" : "validate on"));
    print_classes(found, *data);
    print_sizes(found.sizes);
    const auto* texts = dynamic_cast<const TextImages*>(data.get());
    print_pixels(found, *data->pixels(), texts != nullptr);
    if (texts != nullptr) {
        // By the settings of the task, where texts are what is trained on.
        const std::shared_ptr<const Task> task = config.task.name() == "text_detection" ? make_task(config) : nullptr;
        const auto* detection = dynamic_cast<const TextDetection*>(task.get());
        const TextDetectionOptions options = detection != nullptr ? detection->options() : TextDetectionOptions();
        print_text_ceiling(*texts, a.samples, threads, options.boxes, options.protocol);
    }
    print_broken(found);

    const std::string file = a.output.empty() ? fmt::format("{}-{}.png", config.data.name(), a.split) : a.output;
    const Batch batch = batch_to_show(*data, config, wanted, a);
    const Image sheet = sheet_of(batch, *data->pixels(), data->class_names());
    write_png(file, sheet);
    say(fmt::format("{}: {} as the network sees them, {} x {} pixels", file, count_of(batch.size, "image"), sheet.width,
                    sheet.height));
}

}  // namespace

void add_data(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("data", "Show images as a network will see them, with labels and figures");
    auto arguments = std::make_shared<DataArguments>();
    DataArguments& a = *arguments;
    a.add_to(*command);
    command->add_option("-o,--output", a.output, "The sheet; NAME-SPLIT.png where it is not given")
        ->option_text("FILE.png");
    command->add_option("--count", a.count, "Images in the sheet")->option_text("N")->check(CLI::Range(1, 1000));
    command->add_option("--split", a.split, "Which samples: train, augmented, or val")->option_text("train|val");
    command->add_option("--epoch", a.epoch, "Of which the first images are shown, 1 the first; each is augmented anew")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    command->add_option("--samples", a.samples, "Samples to read for the figures, at most")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    command->footer(
        example({"invar data fashion_mnist", "invar data data=image_folder data.root=flowers -o flowers.png",
                 "invar data data=icdar2015 data.root=icdar --split val --count 6"}) +
        read_more("IMAGES.md", "tells about images and their augmentation"));
    command->callback([arguments] { data_command(*arguments); });
}

}  // namespace invar::cli
