// Dataset: numbered samples that any thread may read.
#pragma once

#include <cstdint>
#include <map>
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

// What a model that learned from data takes for granted of them, by name: {"classes", "lily, rose"}. Small, since it is
// kept in checkpoints, and printable.
using DataDescription = std::map<std::string, std::string>;

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
};

enum class Split : std::uint8_t { train, test };
std::string_view name_of(Split split);

}  // namespace invar
