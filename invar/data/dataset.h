// Dataset: numbered samples that any thread may read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/shape.h"
#include "invar/data/batch.h"
#include "invar/image/image.h"

namespace invar {

// What a model has to fit.
struct DataInfo {
    Shape input;               // of one sample's x
    std::int64_t outputs = 0;  // classes to tell apart, or numbers to predict
    // A batch holds more than x and a label for it, so that random ones in their place would not do.
    bool more_than_labels = false;
};

// What a model that learned from data takes for granted of them, by name: {"classes", "lily, rose"}. Small, since it is
// kept in checkpoints, and printable.
using DataDescription = std::map<std::string, std::string>;

// How x was made of pixels v in [0, 1]: (v - mean) / std, for each channel.
struct PixelScale {
    std::vector<double> mean, std;
};

// An image that is none of the samples, as validation would see it.
struct SeenImage {
    Tensor x;        // [1, height, width, channels], on the host
    Image whole;     // upright, as the file has it; without pixels where only a part of them was decoded
    ImageSize size;  // of the whole
    RealBox box;     // the part of it that x shows, in its pixels; may reach beyond it
};

// What a Loader asks for beside the samples.
struct ReadOptions {
    std::int64_t epoch = 0;  // data to train on may show a sample another way in each
    bool bytes = false;      // x may stay pixels, u8 of 0 to 255: the Loader makes numbers of them by Dataset::pixels
};

class Dataset {
  public:
    virtual ~Dataset() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t size() const = 0;
    virtual DataInfo info() const = 0;
    // A run refuses to go on with, and to be evaluated on, data that say something else under a name than its own did.
    virtual DataDescription description() const { return {}; }
    // These samples as new tensors on the host. Safe to call from several threads at once.
    virtual Batch read(std::span<const std::int64_t> indices) const = 0;
    // The same as a run sees them: augmented, where they are to train on, by what follows from the seed that the data
    // were opened with, the epoch and the sample's number alone.
    virtual Batch read_for(const ReadOptions&, std::span<const std::int64_t> indices) const { return read(indices); }

    // Of images [height, width, channels]; nothing where x is something else.
    virtual std::optional<PixelScale> pixels() const { return {}; }
    // The image of a file's bytes, which errors call `name`: resized as a whole to the size of x, and grey where x has
    // one channel, unless validation sees its images otherwise. Nothing where x is no image.
    virtual std::optional<SeenImage> see(std::span<const std::uint8_t> file, const std::string& name) const;
    // What labels stand for, where they have names.
    virtual std::vector<std::string> class_names() const { return {}; }
    // What whoever uses them should know, a line each: files that were left out, for example.
    virtual std::vector<std::string> notes() const { return {}; }
};

enum class Split : std::uint8_t { train, test };
std::string_view name_of(Split split);

}  // namespace invar
