// Command lines as guides to mixed precision print them, with the program's name replaced by ours.
#include "tests/cli/program.h"
#include "tests/cli/slurm.h"

namespace invar::cli {
namespace {

struct Line {
    const char* text;
    const char* skipped = nullptr;  // why it is not run
};

constexpr const char* kFp8 = "nothing trains in FP8";
constexpr const char* kOthers = "runs another program, and nothing of ours";

// What stands in for an ellipsis ("... other args ...") is left out.
constexpr Line kLines[] = {
    // A guide to FP16 with Lightning and Hydra.
    {"uv run python runners/train.py trainer=fp16_safe"},
    {R"(uv run python runners/train.py trainer.precision="16-mixed")"},
    {R"(uv run python runners/train.py \
  trainer.max_epochs=3 \
  trainer.limit_val_batches=50 \
  exp_name=fp32_baseline \
  logger.wandb.enabled=true)"},
    {R"(uv run python runners/train.py \
  trainer=fp16_safe \
  trainer.max_epochs=3 \
  trainer.limit_val_batches=50 \
  exp_name=fp16_test \
  logger.wandb.enabled=true)"},
    {R"(uv run python runners/train.py \
  trainer.max_epochs=3 \
  trainer.limit_train_batches=0 \
  trainer.limit_val_batches=50 \
  exp_name=fp32_baseline_$(date +%Y%m%d) \
  logger.wandb.enabled=true \
  trainer.precision="32-true")"},
    {R"(uv run python runners/train.py \
  trainer=fp16_safe \
  trainer.max_epochs=3 \
  trainer.limit_train_batches=0 \
  trainer.limit_val_batches=50 \
  exp_name=fp16_validation_$(date +%Y%m%d) \
  logger.wandb.enabled=true)"},
    {R"(uv run python runners/train.py \
  trainer=fp16_safe \
  trainer.max_epochs=10 \
  exp_name=fp16_full_validation \
  logger.wandb.enabled=true)"},
    {"uv run python runners/train.py trainer=fp16_safe  # Don't do this first!"},
    {"./scripts/validate_fp16.sh  # Run validation script"},
    {R"(uv run python runners/train.py trainer.precision="32-true")"},
    {R"(echo "FP16 failure: [description]" >> docs/performance/fp16_issues.md)", kOthers},
    // A guide to AMP on a cluster, with flags.
    {R"(python latentwire/train.py \
    --mixed_precision bf16 \
    --batch_size 256)"},
    {R"(python latentwire/train.py \
    --mixed_precision fp16 \
    --grad_scaler_init 65536 \
    --batch_size 256)"},
    {"sbatch telepathy/submit_mixed_precision.slurm"},
    {"PRECISION=bf16 BATCH_SIZE=512 sbatch telepathy/submit_mixed_precision.slurm"},
    {R"(python latentwire/train.py \
    --mixed_precision bf16 \
    --amp_opt_level O2 \
    --batch_size 512 \
    --grad_accum_steps 1 \
    --grad_ckpt  # Further memory savings)"},
    {R"(python latentwire/train.py \
    --mixed_precision bf16 \
    --amp_opt_level O1 \
    --batch_size 128 \
    --grad_accum_steps 2)"},
    // Here a comment in the middle, which would cut the line, is left out.
    {R"(python latentwire/train.py \
    --mixed_precision fp16 \
    --amp_opt_level O0 \
    --debug)"},
    // Flags that the same guide names by themselves, behind its program.
    {"python latentwire/train.py --mixed_precision bf16"},
    {"python latentwire/train.py --mixed_precision fp16"},
    {"python latentwire/train.py --mixed_precision fp8", kFp8},
    {"python latentwire/train.py --mixed_precision no"},
    {"python latentwire/train.py --batch_size 64"},
    {"python latentwire/train.py --batch_size 192  # or even 256"},
    {"python latentwire/train.py --grad_scaler_init 2048"},
    {"python latentwire/train.py --grad_scaler_growth_interval 2000"},
    {"python latentwire/train.py --grad_scaler_backoff 0.25"},
    // Settings of a guide for reinforcement learning, and policies of Keras, which both stand in Python there.
    {"uv run python runners/train.py policy.gradient_clipping=True policy.max_grad_norm=1.0"},
    {R"(uv run python runners/train.py policy.precision="bfloat16" policy.max_grad_norm=1.0)"},
    {R"(uv run python runners/train.py policy.precision="float16" policy.max_grad_norm=0.5)"},
    {R"(uv run python runners/train.py policy.precision="float32")"},
    {"uv run python runners/train.py trainer.precision='mixed_float16'"},
    {"uv run python runners/train.py trainer.precision='mixed_bfloat16'"},
    {"nvidia-smi", kOthers},
    {R"line(python -c "import torch; print(torch.isnan(tensor).any())")line", kOthers},
    {"python -m memory_profiler script.py", kOthers},
};

// What is added before the line's own words: made-up data and a small model, so that a run takes a second.
constexpr const char* kAdded =
    " data=synthetic data.size=640 data.height=6 data.width=6 model=mlp model.hidden=[8] data.num_workers=0"
    " trainer.threads=1";

std::string replaced(std::string text) {
    const std::pair<std::string, std::string> programs[] = {
        {"uv run python runners/train.py", std::string("invar train") + kAdded},
        {"python latentwire/train.py", std::string("invar train") + kAdded},
        {"./scripts/validate_fp16.sh", std::string(INVAR_SOURCE_DIR "/scripts/validate_fp16.sh") + kAdded},
        {"telepathy/submit_mixed_precision.slurm",
         std::string(INVAR_SOURCE_DIR "/scripts/slurm/train.sbatch") + kAdded},
    };
    for (const auto& [theirs, ours] : programs)
        if (const std::size_t at = text.find(theirs); at != text.npos) return text.replace(at, theirs.size(), ours);
    ADD_FAILURE() << "no program of ours stands for the one in: " << text;
    return text;
}

class FamiliarLines : public CliTest, public ::testing::WithParamInterface<Line> {};

TEST_P(FamiliarLines, Run) {
    if (GetParam().skipped != nullptr) GTEST_SKIP() << GetParam().skipped << ": " << GetParam().text;
    const std::string line = replaced(GetParam().text);
    const Result result = shell(with_slurm_stand_in(folder_, 1) + "export INVAR=invar\n" + line + "\n");
    // The script ends with its verdict on two short runs, which may be any.
    const bool verdict = has(line, "validate_fp16.sh") && (result.code == 1 || result.code == 3 || result.code == 4);
    EXPECT_TRUE(result.code == 0 || verdict) << line << "\nends with " << result.code << "\n" << result.err;
    bool trained = false;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
        trained = trained || entry.path().filename() == "summary.json";
    EXPECT_TRUE(trained) << line;
}

INSTANTIATE_TEST_SUITE_P(Guides, FamiliarLines, ::testing::ValuesIn(kLines),
                         [](const auto& info) { return "Line" + std::to_string(info.index); });

void PrintTo(const Line& line, std::ostream* out) {
    *out << line.text;
}

}  // namespace
}  // namespace invar::cli
