#include "invar/data/image_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "invar/core/error.h"
#include "invar/data/file_bytes.h"
#include "invar/data/image_files.h"
#include "invar/data/image_set.h"
#include "invar/data/registry.h"
#include "invar/image/decode.h"
#include "invar/image/transform.h"
#include "invar/io/checksum.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kSplitStream = 0x666f'6c64'6572'0000;

// Where the classes of each split lie.
struct Layout {
    fs::path train;
    std::optional<fs::path> test;     // none: a share of the first
    std::vector<std::string> unused;  // folders beside these
};

Layout layout_of(const std::string& root) {
    const fs::path below = root.empty() ? "." : root;
    check<UsageError>(fs::is_directory(below),
                      "data=image_folder: there is no folder {}; set data.root to one with a folder for each class, or "
                      "with train and val that have them",
                      below.string());
    Layout layout{below, {}, {}};
    std::string found;
    const std::vector<fs::path> folders = folders_in(below);
    const auto named = [&](const std::string& wanted) {
        return std::ranges::find_if(folders, [&](const fs::path& path) {
            std::string name = path.filename().string();
            std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
            return name == wanted;
        });
    };
    for (const char* name : {"val", "valid", "validation", "dev", "test"})
        if (const auto folder = named(name); !layout.test && folder != folders.end())
            layout.test = *folder, found = name;
    if (const auto train = named("train"); train != folders.end()) {
        layout.train = *train;
        for (const fs::path& path : folders)
            if (path != layout.train && path != layout.test) layout.unused.push_back(path.filename().string());
        return layout;
    }
    check<UsageError>(!layout.test, "{}: there is a folder {} and none called train; name what is trained on so",
                      below.string(), found);
    return layout;
}

std::vector<std::string> classes_in(const fs::path& folder) {
    std::vector<std::string> classes;
    for (const fs::path& path : folders_in(folder)) classes.push_back(path.filename().string());
    check<UsageError>(!classes.empty(), "{}: no folder in it, expected one for each class", folder.string());
    check<UsageError>(classes.size() > 1,
                      "{}: a single class, {}; to tell classes apart takes two, each in a folder of its own",
                      folder.string(), classes[0]);
    return classes;
}

// The numbers of files in an order that follows from the seed and from each one's name and folder.
std::vector<std::size_t> shuffled(const std::vector<fs::path>& files, std::uint64_t seed) {
    std::vector<std::pair<std::uint64_t, std::size_t>> keys;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string name = (files[i].parent_path().filename() / files[i].filename()).string();
        const Random4 r = philox(seed, crc32c(name), kSplitStream + name.size());
        keys.emplace_back(std::uint64_t(r.v[0]) << 32 | r.v[1], i);
    }
    std::ranges::sort(keys);
    std::vector<std::size_t> order;
    for (const auto& [key, i] : keys) order.push_back(i);
    return order;
}

// What a split has of the files of a class: of n at least one is trained on. Which ones follows from their names, so
// that a file that comes or goes moves no more than one other.
std::vector<fs::path> part_of(std::vector<fs::path> files, double val_share, Split split, std::uint64_t seed) {
    const std::vector<std::size_t> order = shuffled(files, seed);
    const auto wanted = std::size_t(std::lround(val_share * double(files.size())));
    const std::size_t to_validate = std::min(wanted, files.size() - 1);
    std::vector<std::size_t> chosen(order.begin(), order.begin() + long(to_validate));
    if (split == Split::train) chosen.assign(order.begin() + long(to_validate), order.end());
    std::ranges::sort(chosen);
    std::vector<fs::path> part;
    for (const std::size_t i : chosen) part.push_back(std::move(files[i]));
    return part;
}

void leave_out_broken(ImageFolder& folder) {
    const std::vector<BrokenFile> broken = find_broken_images(folder.files);
    if (broken.empty()) return;
    folder.notes.push_back(broken_note(broken, folder.files.size()));
    check<UsageError>(broken.size() < folder.files.size(), "data=image_folder: no image can be read: {}",
                      broken.front().why);
    for (auto one = broken.rbegin(); one != broken.rend(); ++one) {
        folder.files.erase(folder.files.begin() + long(one->index));
        folder.labels.erase(folder.labels.begin() + long(one->index));
    }
}

AugmentOptions augment_options(const ImageFolderOptions& o) {
    for (const auto& [name, range] : {std::pair("scale", o.scale), std::pair("ratio", o.ratio)})
        check<UsageError>(range[0] <= range[1], "data.{}=[{}, {}]: the smaller of the two comes first", name, range[0],
                          range[1]);
    AugmentOptions a;
    a.size = {o.size, o.size};
    a.scale = {o.scale[0], o.scale[1]}, a.ratio = {o.ratio[0], o.ratio[1]};
    a.flip = o.flip, a.degrees = o.degrees, a.brightness = o.brightness, a.contrast = o.contrast;
    a.saturation = o.saturation, a.hue = o.hue, a.grey = o.grey, a.blur = o.blur;
    a.blur_kernel = std::max<std::int64_t>(3, o.size / 10 / 2 * 2 + 1);  // SimCLR's tenth of the side
    check_options(a);
    return a;
}

}  // namespace

std::vector<std::string> image_folder_classes(const std::string& root) {
    return classes_in(layout_of(root).train);
}

ImageFolder list_image_folder(const ImageFolderOptions& options, Split split, std::uint64_t seed) {
    const Layout layout = layout_of(options.root);
    ImageFolder result;
    result.classes = classes_in(layout.train);
    const bool apart = layout.test.has_value();
    const fs::path& folder = apart && split == Split::test ? *layout.test : layout.train;
    for (const fs::path& path : folders_in(folder))
        check<UsageError>(
            std::ranges::binary_search(result.classes, path.filename().string()),
            "{}: no such class in {}, which has {}{}", path.string(), layout.train.string(),
            fmt::join(result.classes.begin(),
                      result.classes.begin() + long(std::min<std::size_t>(8, result.classes.size())), ", "),
            result.classes.size() > 8 ? ", ..." : "");
    if (!layout.unused.empty())
        result.notes.push_back(fmt::format("of {} {} used: {}", options.root,
                                           layout.unused.size() == 1 ? "one folder is not" : "some folders are not",
                                           fmt::join(layout.unused, ", ")));
    std::int64_t others = 0;
    std::string first_other;
    for (std::size_t label = 0; label < result.classes.size(); ++label) {
        const fs::path class_folder = folder / result.classes[label];
        if (!fs::is_directory(class_folder)) continue;  // a class that validation has no image of
        ImageFiles found = image_files_in(class_folder);
        if (found.others > 0 && others == 0) first_other = found.first_other;
        others += found.others;
        check<UsageError>(
            !found.files.empty() || split == Split::test,
            "{}: no image in this folder (JPEG, PNG or WebP, by their suffix); every class needs some, or "
            "remove the folder",
            class_folder.string());
        if (!apart && !found.files.empty())
            found.files = part_of(std::move(found.files), options.val_share, split, seed);
        result.labels.insert(result.labels.end(), found.files.size(), std::int64_t(label));
        std::ranges::move(found.files, std::back_inserter(result.files));
    }
    check<UsageError>(!result.files.empty(), "{}: no image to {} (data.val_share={}); put some into the folders",
                      folder.string(), split == Split::train ? "train on" : "validate on", options.val_share);
    if (others > 0)
        result.notes.push_back(fmt::format(
            "{} left out, since only JPEG, PNG and WebP are read; the first: {}",
            others == 1 ? "1 file is" : fmt::format("{} files are", others), first_other));
    if (options.on_broken == "skip") leave_out_broken(result);
    return result;
}

ImageFolderDataset::ImageFolderDataset(const ImageFolderOptions& options, Split split, std::uint64_t seed)
    : folder_(list_image_folder(options, split, seed)),
      augment_(augment_options(options)),
      shorter_side_(options.resize > 0 ? options.resize : std::lround(double(options.size) * 256 / 224)),
      seed_(seed),
      augmented_(split == Split::train && options.augment),
      scale_{{options.mean.begin(), options.mean.end()}, {options.std.begin(), options.std.end()}},
      table_(scale_) {
    check<UsageError>(shorter_side_ >= options.size,
                      "data.resize={} is less than data.size={}: validation takes the middle of the resized image",
                      shorter_side_, options.size);
}

DataInfo ImageFolderDataset::info() const {
    return {{augment_.size.height, augment_.size.width, 3}, std::int64_t(folder_.classes.size())};
}

DataDescription ImageFolderDataset::description() const {
    constexpr std::size_t kMost = 4096;  // it is kept in every checkpoint
    std::string names = fmt::format("{}", fmt::join(folder_.classes, ", "));
    if (names.size() > kMost)
        names = fmt::format("{} from {} to {}, checksum {:08x}", folder_.classes.size(), folder_.classes.front(),
                            folder_.classes.back(), crc32c(names));
    return {{"classes", names}};
}

ImageSize ImageFolderDataset::stored_size(std::int64_t index) const {
    const fs::path& path = folder_.files.at(std::size_t(index));
    return image_size(bytes_of(read_data_file(path)), path.string());
}

std::optional<SeenImage> ImageFolderDataset::see(std::span<const std::uint8_t> file, const std::string& name) const {
    SeenImage seen = seen_image(centre_view(file, name, shorter_side_, augment_.size), table_);
    seen.size = image_size(file, name);
    const ImageSize resized = with_shorter_side(seen.size, shorter_side_);
    const PixelBox box = centre_box(resized, augment_.size);
    const double by_y = double(resized.height) / double(seen.size.height);
    const double by_x = double(resized.width) / double(seen.size.width);
    seen.box = {double(box.top) / by_y, double(box.left) / by_x, double(box.height) / by_y, double(box.width) / by_x};
    return seen;
}

Image ImageFolderDataset::image_of(std::int64_t index, std::int64_t epoch, bool augmented) const {
    const fs::path& path = folder_.files[std::size_t(index)];
    try {
        const std::string content = read_data_file(path);
        if (!augmented) return centre_view(bytes_of(content), path.string(), shorter_side_, augment_.size);
        const RngState key = augment_key(seed_, std::uint64_t(epoch), std::uint64_t(index));
        return augment(bytes_of(content), path.string(), augment_, key);
    } catch (const IoError& error) {
        fail<IoError>("{}, or leave such files out by data.on_broken=skip", error.what());
    }
}

Batch ImageFolderDataset::read(std::span<const std::int64_t> indices, const ReadOptions& options,
                               bool augmented) const {
    const Shape shape = info().input;
    const std::int64_t per_image = shape.numel();
    Batch batch = image_batch(std::int64_t(indices.size()), shape, options.bytes ? Dtype::u8 : Dtype::f32);
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t index = indices[i], first = std::int64_t(i) * per_image;
        check(index >= 0 && index < size(), "image_folder: sample {} does not exist; it has {}", index, size());
        const Image image = image_of(index, options.epoch, augmented);
        if (options.bytes)
            std::ranges::copy(image.pixels, batch["x"].data<std::uint8_t>() + first);
        else
            table_.numbers(image.pixels, batch["x"].data<float>() + first);
        batch["y"].data<std::int64_t>()[i] = folder_.labels[std::size_t(index)];
    }
    return batch;
}

namespace {

using O = ImageFolderOptions;
const RegisterData<O> kImageFolder{
    "image_folder",
    "Your own images, JPEG, PNG or WebP: a folder for each class.",
    [](const O& options, Split split, std::uint64_t seed) {
        return std::make_shared<ImageFolderDataset>(options, split, seed);
    },
    {key("root", &O::root, path(), "Has train and val with a folder for each class, or those folders themselves."),
     key("size", &O::size, within(1, 4096), "Height and width that the network sees."),
     key("resize", &O::resize, within(0, 8192),
         "Validation sees the middle of the image with its shorter side resized to this; 0 for 8/7 of the size."),
     key("val_share", &O::val_share, custom("above 0 and below 1", [](double v) { return v > 0 && v < 1; }),
         "Share of each class to validate on, chosen by the seed, where there is no folder val or test."),
     key("on_broken", &O::on_broken, one_of({"refuse", "skip"}),
         "An image that cannot be read ends the run; skip reads all of them once at the start and leaves such out."),
     key("augment", &O::augment, any(), "Whether images to train on are; false shows them as validation does."),
     key("scale", &O::scale, custom("above 0 and at most 1", [](double v) { return v > 0 && v <= 1; }),
         "Random resized crop: share of the image's area, from and to."),
     key("ratio", &O::ratio, above(0), "Random resized crop: width over height, from and to."),
     key("flip", &O::flip, within(0, 1), "Probability of left for right."),
     key("degrees", &O::degrees, within(0, 180), "Rotated by at most so much to either side."),
     key("brightness", &O::brightness, within(0, 100), "Colour jitter: a factor within 1 - x and 1 + x."),
     key("contrast", &O::contrast, within(0, 100), "Likewise."),
     key("saturation", &O::saturation, within(0, 100), "Likewise."),
     key("hue", &O::hue, within(0, 0.5), "Colour jitter: turned by at most that to either side; 0.5 is any colour."),
     key("grey", &O::grey, within(0, 1), "Probability of no colours at all."),
     key("blur", &O::blur, within(0, 1), "Probability of a Gaussian blur, sigma 0.1 to 2."),
     key("mean", &O::mean, any(), "A pixel v in [0, 1] becomes (v - mean) / std; ImageNet's red, green and blue."),
     key("std", &O::std, above(0), "See mean.")},
    [](const O& options) {
        return DataInfo{{options.size, options.size, 3}, std::int64_t(image_folder_classes(options.root).size())};
    }};

}  // namespace

}  // namespace invar
