#include "invar/train/speed.h"

#include "invar/core/memory.h"
#include "invar/train/bench.h"

namespace invar {

SpeedScale::SpeedScale(const Setup& setup)
    : setup_(setup), unit_(setup.task->speed_unit()), measured_in_(setup.precision) {
    if (unit_.name == SpeedUnit{}.name) return;
    product_flops_per_s_ = measure_product(setup.device, measured_in_);
    release_cached_memory(setup.device);
    reset_peak_memory(setup.device);
}

Rate SpeedScale::at(double samples_per_s) const {
    Rate rate{unit_.name, samples_per_s * unit_.per_sample};
    if (product_flops_per_s_ > 0 && setup_.precision == measured_in_)
        rate.mfu = samples_per_s * flops_per_sample_ / product_flops_per_s_;
    return rate;
}

}  // namespace invar
