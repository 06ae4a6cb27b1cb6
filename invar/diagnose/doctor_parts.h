// The parts of an examination: operations tried on a device beside the same in f64, and the bound that a format and
// sums in FP32 allow between the two.
#pragma once

#include <vector>

#include "invar/core/rng.h"
#include "invar/core/tensor.h"
#include "invar/diagnose/doctor.h"
#include "invar/kernels/kernels.h"

namespace invar {

// Which format is examined, where.
struct Examined {
    Device device;
    Kernels& kernels;
    Dtype dtype = Dtype::f32;
    bool tf32 = false;
    std::uint64_t seed = 0;
};

// An operation's result as the device gave it, beside f64 on the same operands. All on the host.
struct TriedOperation {
    std::string operation, shapes;
    Tensor got;
    Tensor exact;             // f64, as the next; undefined where nobody asked for it
    Tensor magnitude;         // the sum of the magnitudes of all that is added up: what rounding is relative to
    std::int64_t terms = 0;   // that one element adds up, at most
    bool multiplies = true;   // false where it only adds, so that no operand is rounded to TF32
    std::int64_t stride = 1;  // of rows and columns: of a large product a sample is compared
};

// A tensor of the format on the device, and the same numbers in f64 on the host, dense.
struct GivenTensor {
    Tensor there, exact;
    GivenTensor(const Examined& on, const std::vector<double>& values, const Shape& shape, Dtype dtype);
    Tensor magnitude() const;  // |exact|
};

// Sums up a comparison without making words of every element.
class Comparing {
  public:
    void see(std::int64_t index, double got, double expected, double bound, bool wrong);
    // `place` says in words where an element is, or what it was made of.
    ComparedValues result(const std::string& operation, const std::string& shapes,
                          const std::function<std::string(std::int64_t index)>& place) const;

  private:
    std::int64_t values_ = 0, wrong_ = 0, index_ = -1;
    WorstElement worst_;
};

// Uniform in (-scale, scale), by seed and stream.
std::vector<double> random_values(const Examined& on, std::uint64_t stream, std::int64_t count, double scale = 1);

// How far `got` may be from an exact value.
double error_bound(const Examined& on, const TriedOperation& tried, double exact, double magnitude);

// Each element against its bound.
ComparedValues compare_values(const Examined& on, const TriedOperation& tried);
// That what is not finite is seen; all other elements may be anything.
ComparedValues compare_non_finite(const Examined& on, const TriedOperation& tried);
// That two results are the same bits.
ComparedValues compare_bits(const TriedOperation& first, const TriedOperation& again);

// What is put into an operand for the check that it is seen.
struct Planted {
    enum class Where : std::uint8_t { nothing, input, weight, gradient, overflow } where = Where::nothing;
    double value = 0;
};

struct TryOptions {
    Planted planted = {};
    bool exact = true;  // compute it in f64 too
};

// Products as layers make them: forward with bias, both gradients, batches. Small ones, or those of some size.
enum class TrySize : std::uint8_t { small, large };
std::vector<TriedOperation> try_products(const Examined& on, TrySize size, const TryOptions& options = {});
std::vector<TriedOperation> try_convolutions(const Examined& on, TrySize size, const TryOptions& options = {});

ComparedValues check_conversions(const Examined& on);
ComparedValues check_products(const Examined& on);
ComparedValues check_convolutions(const Examined& on);
ComparedValues check_non_finite(const Examined& on);
ComparedValues check_repeats(const Examined& on);
bool keeps_subnormals(const Examined& on);

MemoryHealth check_memory(const Examined& on, std::int64_t most);
// What the device is, what its hardware should give, and, where it is to be `timed`, what it gives.
void measure_speed(DeviceHealth& health, bool timed);

}  // namespace invar
