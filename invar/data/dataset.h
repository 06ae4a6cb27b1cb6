// Dataset: numbered samples that any thread may read; and the one call that opens a set of labelled images by name.
// Their batches hold x, f32 [n, h, w, c] and normalised, and y, i64 [n].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "invar/core/shape.h"
#include "invar/data/batch.h"

namespace invar {

// What a model has to fit.
struct DataInfo {
    Shape input;               // of one sample's x
    std::int64_t outputs = 0;  // classes to tell apart, or numbers to predict
};

class Dataset {
  public:
    virtual ~Dataset() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t size() const = 0;
    virtual DataInfo info() const = 0;
    // These samples as new tensors on the host. Safe to call from several threads at once.
    virtual Batch read(std::span<const std::int64_t> indices) const = 0;
};

enum class Split : std::uint8_t { train, test };
std::string_view name_of(Split split);

struct DatasetOptions {
    std::string name = "synthetic";  // fashion_mnist, mnist, cifar10, cifar100 or synthetic
    std::string root = "data";       // where the files lie; distribution packages are looked for in their own place
    double mean = 0.5;               // a pixel v in [0, 1] becomes (v - mean) / std
    double std = 0.5;

    // Of the synthetic set alone; the others take them from their files.
    std::int64_t size = 10000;  // samples to train on; the test split has a fifth of it
    std::int64_t height = 28;
    std::int64_t width = 28;
    std::int64_t channels = 1;
    std::int64_t classes = 10;
    std::uint64_t seed = 0;
};

// Reads the whole split into memory. An unknown name, bad numbers or missing files are UsageErrors, files that do not
// hold what they should are IoErrors.
std::shared_ptr<Dataset> make_dataset(const DatasetOptions& options, Split split);
std::span<const std::string> dataset_names();

}  // namespace invar
