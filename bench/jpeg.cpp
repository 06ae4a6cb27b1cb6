// JPEG files to augmented images of 224 x 224 on one core, as a loader's worker makes them: random resized crop and
// flip; then what the steps of that take by themselves. The peer is bench/jpeg_peer.py, on the same files.
//   ninja -C build bench_jpeg && taskset -c 0 build/bin/bench_jpeg [FOLDER]
// Without a folder of *.jpg it makes 32 files of 500 x 375, quality 90, and says where.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/image/augment.h"
#include "invar/image/encode.h"
#include "invar/image/transform.h"
#include "invar/io/file.h"

namespace {

using namespace invar;
namespace fs = std::filesystem;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Noise of several scales, as photographs have it.
Image made_photograph(std::uint64_t seed) {
    Image photograph(375, 500, 3, 128);
    const std::pair<std::int64_t, double> scales[] = {{64, 50}, {16, 40}, {4, 30}, {2, 12}, {1, 4}};
    for (const auto& [scale, deviation] : scales) {
        Image noise(375 / scale + 2, 500 / scale + 2, 3, 128);
        add_noise(noise, deviation, {seed, std::uint64_t(scale) << 32});
        noise = resize(noise, {375, 500});
        for (std::size_t i = 0; i < noise.pixels.size(); ++i)
            photograph.pixels[i] = std::uint8_t(std::clamp(photograph.pixels[i] + noise.pixels[i] - 128, 0, 255));
    }
    return photograph;
}

fs::path made_folder() {
    const fs::path folder = fs::temp_directory_path() / "invar_bench_jpeg";
    fs::create_directories(folder);
    for (std::uint64_t i = 0; i < 32; ++i) {
        const fs::path path = folder / fmt::format("{:02}.jpg", i);
        if (!fs::exists(path)) write_file_atomically(path, encode_jpeg(made_photograph(i), 90));
    }
    return folder;
}

// Images in a second of the core: the best of five rounds of half a second each, since others may be on the machine.
void measure(const char* what, const std::vector<std::string>& files,
             const std::function<void(const std::string&, std::uint64_t)>& work) {
    const auto seconds_of_core = [] { return double(std::clock()) / CLOCKS_PER_SEC; };
    double best = 0;
    std::uint64_t sample = 0;
    for (int round = 0; round < 5; ++round) {
        const double begin = seconds_of_core();
        double seconds = 0, count = 0;
        for (; seconds < 0.5; ++count, seconds = seconds_of_core() - begin)
            work(files[sample % files.size()], sample), ++sample;
        best = std::max(best, count / seconds);
    }
    fmt::print("{:<52} {:8.0f} img/s  {:6.3f} ms\n", what, best, 1e3 / best);
}

void run(const fs::path& folder) {
    std::vector<std::string> files;
    std::size_t bytes = 0;
    std::vector<fs::path> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".jpg") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) files.push_back(read_file(path)), bytes += files.back().size();
    check<UsageError>(!files.empty(), "{}: no *.jpg in it", folder.string());
    const ImageSize size = image_size(bytes_of(files[0]), paths[0].string());
    fmt::print("{} files of {}, {} KB each; the first is {} x {}\n", files.size(), folder.string(),
               bytes / files.size() / 1000, size.width, size.height);

    AugmentOptions options;
    measure("random resized crop to 224, flip", files, [&](const std::string& file, std::uint64_t sample) {
        augment(bytes_of(file), "", options, augment_key(1, 0, sample));
    });
    AugmentOptions jittered = options;
    jittered.brightness = jittered.contrast = jittered.saturation = 0.4, jittered.hue = 0.1;
    measure("the same with colour jitter", files, [&](const std::string& file, std::uint64_t sample) {
        augment(bytes_of(file), "", jittered, augment_key(1, 0, sample));
    });
    measure("centre view: shorter side 256, middle 224", files, [](const std::string& file, std::uint64_t) {
        centre_view(bytes_of(file), "", 256, {224, 224});
    });
    measure("decode alone, whole", files,
            [](const std::string& file, std::uint64_t) { decode_image(bytes_of(file), ""); });
    const Image whole = decode_image(bytes_of(files[0]), "");
    measure("resize alone, whole to 224", files, [&](const std::string&, std::uint64_t) { resize(whole, {224, 224}); });
}

}  // namespace

int main(int count, char** words) {
    try {
        run(count > 1 ? fs::path(words[1]) : made_folder());
    } catch (const invar::Error& error) {
        fmt::print(stderr, "error: {}\n", error.what());
        return 1;
    }
}
