// OpRecorder: the operations of a step one by one, forward and backward, each with its time, the bytes that it reads
// and writes, the arithmetic of its products, its dtype and its module.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "invar/autograd/op_timer.h"
#include "invar/kernels/flops.h"
#include "invar/kernels/kernels.h"

namespace invar {

struct TimedOp {
    StepPart part = StepPart::forward;
    std::string module, op;    // "" is the model itself; "(update)" no module at all
    Dtype dtype = Dtype::f32;  // that it computes in
    bool tf32 = false;
    std::string shapes;  // "f16[64, 36], f16[8, 36] -> f16[64, 8]"
    double start = 0;    // seconds since the step began
    double seconds = 0;  // what ran inside it included
    double own = 0;      // without that
    double bytes = 0;    // read and written, each tensor once; 0 where nothing moves
    double flops = 0;    // of products, convolutions and attention
    std::string dtype_name() const;
};

// Waits for the device after each operation. Its own work does not count: its clock stands still meanwhile.
class OpRecorder : public OpTimer {
  public:
    explicit OpRecorder(Device device) : device_(device) {}
    ~OpRecorder() override { clear(); }
    OpRecorder(const OpRecorder&) = delete;
    OpRecorder& operator=(const OpRecorder&) = delete;

    void begin_step();
    // How long the step took by that clock.
    double end_step();
    // In the order in which they ended.
    std::vector<TimedOp> take_ops() { return std::move(ops_); }

    void begin_forward(const char* op) override;
    void forward(const ForwardRun& run) override;
    void begin_backward(const Node& node) override;
    void read_saved(const Tensor& tensor) override;
    void made_ahead(const Tensor& tensor) override { made_ahead_.insert(tensor.raw()); }
    void backward(const BackwardRun& run) override;
    void begin_part(StepPart part, const char* name, Dtype dtype, double bytes) override;
    void end_part() override;

  private:
    struct Open {
        TimedOp op;
        double inside = 0, flops_inside = 0;  // of what has ended inside it
        bool holds_others = false;
        std::unordered_map<const void*, double> read;  // bytes of what forward saved, by where they lie
        std::unique_ptr<FlopCount> flops;
    };
    // Stops the clock until the end of a scope.
    class Stopped;
    double elapsed() const;
    Open& open(StepPart part, const char* name);
    // Ends the innermost one, which ran until `now`.
    void close(double now, double bytes);
    void clear();

    Device device_;
    std::chrono::steady_clock::time_point began_;
    double stopped_for_ = 0;
    std::vector<Open> open_;
    std::unordered_map<const Node*, Dtype> computed_in_;
    std::unordered_set<const void*> made_ahead_;  // until it is handed on
    std::vector<TimedOp> ops_;
};

}  // namespace invar
