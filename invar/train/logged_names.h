// The one name of each figure that a run logs: on the console, in metrics.jsonl, in TensorBoard's events, in
// wandb.jsonl, in summary.json and in reports. Epochs are counted from 1 in all of them.
#pragma once

#include <string>
#include <string_view>

namespace invar::logged {

inline constexpr const char *kStep = "step", *kEpoch = "epoch";
inline constexpr const char* kLoss = "loss";  // of the training batch
inline constexpr const char* kLr = "lr";
inline constexpr const char* kGradNorm = "grad_norm";                 // of all gradients, before clipping
inline constexpr const char* kGradNormClipped = "grad_norm_clipped";  // after it, where the norm is clipped
inline constexpr const char* kMaxGradNorm = "max_grad_norm";          // the largest of all steps
inline constexpr const char* kScale = "scale";
inline constexpr const char* kGrowthTracker = "growth_tracker";
inline constexpr const char* kSkipped = "skipped";  // steps so far
inline constexpr const char* kSamplesPerS = "samples_per_s";
inline constexpr const char* kMfu = "mfu";
inline constexpr const char* kStepMs = "step_ms";
inline constexpr const char *kPeakBytes = "peak_bytes", *kLiveBytes = "live_bytes";  // of the device, by purpose
inline constexpr const char* kHostBytes = "host_bytes";                              // resident, of this process
inline constexpr const char* kGpuUtilization = "gpu_utilization";                    // percent
inline constexpr const char* kGradNorms = "grad_norms";                              // by module
inline constexpr const char* kSmallGradNorms = "small_grad_norms";                   // by parameter
inline constexpr const char* kActivations = "activations";                           // by module

// What a validation measures: "val_accuracy".
inline std::string of_validation(std::string_view metric) {
    return "val_" + std::string(metric);
}

}  // namespace invar::logged
