#include "invar/data/icdar.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "invar/core/error.h"
#include "invar/data/file_bytes.h"
#include "invar/data/image_files.h"
#include "invar/data/registry.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kSplitStream = 0x6963'6461'7200'0000;

struct TruthFolders {
    fs::path images, truths;
};

std::optional<fs::path> first_folder(const fs::path& below, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (fs::is_directory(below / name)) return below / name;
    return std::nullopt;
}

// Where the images and the truths of one split lie below a folder.
TruthFolders folders_below(const fs::path& below) {
    const fs::path images = first_folder(below, {"images", "imgs", "img"}).value_or(below);
    return {images, first_folder(below, {"gt", "gts", "ground_truth", "labels"}).value_or(images)};
}

struct IcdarLayout {
    TruthFolders train;
    std::optional<TruthFolders> test;  // none: a share of the first
};

IcdarLayout layout_of(const std::string& root) {
    const fs::path below = root.empty() ? "." : root;
    check<UsageError>(
        fs::is_directory(below),
        "data=icdar2015: there is no folder {}; set data.root to the one with ch4_training_images, or with "
        "images and gt",
        below.string());
    const TruthFolders train{below / "ch4_training_images", below / "ch4_training_localization_transcription_gt"};
    const TruthFolders test{below / "ch4_test_images", below / "Challenge4_Test_Task1_GT"};
    if (fs::is_directory(train.images))
        return {train, fs::is_directory(test.images) ? std::optional(test) : std::nullopt};
    const auto trained_on = first_folder(below, {"train", "training"});
    const auto judged_on = first_folder(below, {"val", "valid", "validation", "test"});
    if (!trained_on) return {folders_below(below), std::nullopt};
    return {folders_below(*trained_on), judged_on ? std::optional(folders_below(*judged_on)) : std::nullopt};
}

std::vector<fs::path> text_files_in(const fs::path& folder) {
    check<UsageError>(fs::is_directory(folder), "data=icdar2015: there is no folder {} with the ground truth",
                      folder.string());
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with('.') || entry.path().extension() != ".txt" || entry.is_directory()) continue;
        files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files;
}

// The images of a folder, each with its truth.
IcdarFiles pairs_in(const TruthFolders& folders) {
    ImageFiles found = image_files_in(folders.images);
    check<UsageError>(!found.files.empty(), "{}: no image in this folder (JPEG, PNG or WebP, by their suffix)",
                      folders.images.string());
    std::map<std::string, fs::path> truths;
    for (const fs::path& path : text_files_in(folders.truths)) truths.emplace(path.filename().string(), path);
    IcdarFiles pairs;
    std::set<std::string> used;
    std::vector<fs::path> alone;
    for (fs::path& image : found.files) {
        const std::string stem = image.stem().string();
        bool there = false;
        for (const std::string& name : {"gt_" + stem + ".txt", stem + ".txt", image.filename().string() + ".txt"}) {
            const auto truth = truths.find(name);
            if (truth == truths.end() || there) continue;
            there = true;
            used.insert(name);
            pairs.truths.push_back(truth->second);
        }
        if (there)
            pairs.images.push_back(std::move(image));
        else
            alone.push_back(image);
    }
    check<UsageError>(alone.empty(), "{}: no ground truth gt_{}.txt in {}{}", alone.empty() ? "" : alone[0].string(),
                      alone.empty() ? "" : alone[0].stem().string(), folders.truths.string(),
                      alone.size() > 1 ? fmt::format(", nor for {} other images", alone.size() - 1) : "");
    for (const auto& [name, path] : truths)
        check<UsageError>(used.contains(name), "{}: ground truth without an image in {}", path.string(),
                          folders.images.string());
    if (found.others > 0)
        pairs.notes.push_back(
            fmt::format("{} left out, since only JPEG, PNG and WebP are read; the first: {}",
                        found.others == 1 ? "1 file is" : fmt::format("{} files are", found.others),
                        found.first_other));
    return pairs;
}

IcdarFiles share_of(IcdarFiles all, double val_share, Split split, std::uint64_t seed) {
    std::vector<std::pair<std::uint32_t, std::size_t>> order;
    for (std::size_t i = 0; i < all.images.size(); ++i) order.emplace_back(philox(seed, i, kSplitStream).v[0], i);
    std::ranges::sort(order);
    const auto to_validate = std::size_t(std::lround(val_share * double(order.size())));
    IcdarFiles part;
    part.notes = all.notes;
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < order.size(); ++i)
        if ((i < to_validate) == (split == Split::test)) chosen.push_back(order[i].second);
    std::ranges::sort(chosen);
    for (const std::size_t i : chosen) {
        part.images.push_back(std::move(all.images[i]));
        part.truths.push_back(std::move(all.truths[i]));
    }
    return part;
}

void leave_out_broken(IcdarFiles& files) {
    const std::vector<BrokenFile> broken = find_broken_images(files.images);
    if (broken.empty()) return;
    files.notes.push_back(broken_note(broken, files.images.size()));
    for (auto one = broken.rbegin(); one != broken.rend(); ++one) {
        files.images.erase(files.images.begin() + long(one->index));
        files.truths.erase(files.truths.begin() + long(one->index));
    }
}

std::vector<std::vector<detect::TextRegion>> read_truths(const IcdarFiles& files, const std::string& format) {
    std::vector<std::vector<detect::TextRegion>> truths;
    for (const fs::path& path : files.truths)
        truths.push_back(detect::read_ground_truth(
            path, format == "polygons" ? detect::TruthFormat::polygons : detect::TruthFormat::quadrilaterals));
    return truths;
}

// Of both splits together, so that their batches have one shape.
TextLimits limits_of(const IcdarDataOptions& options) {
    const IcdarLayout layout = layout_of(options.root);
    std::vector<TruthFolders> all = {layout.train};
    if (layout.test) all.push_back(*layout.test);
    TextLimits limits{1, 4};
    for (const TruthFolders& folders : all)
        for (const auto& texts : read_truths(pairs_in(folders), options.format)) {
            limits.texts = std::max(limits.texts, std::int64_t(texts.size()));
            for (const detect::TextRegion& text : texts)
                limits.points = std::max(limits.points, std::int64_t(text.polygon.size()));
        }
    return limits;
}

}  // namespace

IcdarFiles list_icdar(const IcdarDataOptions& options, Split split, std::uint64_t seed) {
    const IcdarLayout layout = layout_of(options.root);
    const bool apart = layout.test.has_value();
    IcdarFiles files = pairs_in(apart && split == Split::test ? *layout.test : layout.train);
    if (!apart) files = share_of(std::move(files), options.val_share, split, seed);
    if (options.on_broken == "skip") leave_out_broken(files);
    check<UsageError>(!files.images.empty(), "data=icdar2015: no image of {} is left to {} (data.val_share={})",
                      options.root, split == Split::train ? "train on" : "validate on", options.val_share);
    return files;
}

IcdarDataset::IcdarDataset(const IcdarDataOptions& options, Split split, std::uint64_t seed)
    : TextImages("icdar2015", options, split, seed, limits_of(options)),
      files_(list_icdar(options, split, seed)),
      truths_(read_truths(files_, options.format)) {}

TextImage IcdarDataset::load(std::int64_t index) const {
    const fs::path& path = files_.images[std::size_t(index)];
    try {
        const std::string content = read_data_file(path);
        return {decode_image(bytes_of(content), path.string()), truths_[std::size_t(index)]};
    } catch (const IoError& error) {
        fail<IoError>("{}, or leave such files out by data.on_broken=skip", error.what());
    }
}

std::string IcdarDataset::sample_name(std::int64_t index) const {
    return files_.images[std::size_t(index)].filename().string();
}

namespace {

std::vector<Key> keys() {
    using O = IcdarDataOptions;
    std::vector<Key> all = {
        key("root", &O::root, path(),
            "Has ch4_training_images and what belongs to it, or train and val, or images and gt."),
        key("format", &O::format, one_of({"quadrilaterals", "polygons"}),
            "Coordinates that a line of ground truth begins with: eight, or any even number from eight on."),
        key("val_share", &O::val_share, custom("above 0 and below 1", [](double v) { return v > 0 && v < 1; }),
            "Share of the images to validate on, chosen by the seed, where there are none of their own."),
        key("on_broken", &O::on_broken, one_of({"refuse", "skip"}),
            "An image that cannot be read ends the run; skip reads all of them once at the start and leaves such "
            "out.")};
    for (Key& shared : text_images_keys<O>()) all.push_back(std::move(shared));
    return all;
}

const RegisterData<IcdarDataOptions> kIcdar{
    "icdar2015", "Photographs with texts to find, as ICDAR 2015 publishes them, or your own in that form.",
    [](const IcdarDataOptions& options, Split split, std::uint64_t seed) {
        return std::make_shared<IcdarDataset>(options, split, seed);
    },
    keys(), text_images_info};

}  // namespace

}  // namespace invar
