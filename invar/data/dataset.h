// Dataset: numbered samples that any thread may read.
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

}  // namespace invar
