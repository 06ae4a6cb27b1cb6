#!/usr/bin/env bash
# Before FP16 is relied on: three epochs in FP32 (trainer=default), three in FP16 (trainer=fp16_safe), each validated on
# 50 batches, and the verdict on the two: PASS below 1% difference, MARGINAL below 2%, else FAIL.
#
#   scripts/validate_fp16.sh [CONFIG] [key=value ...]      what `invar train` takes, for both runs
#
# Ends with the verdict's exit code: 0 PASS, 3 MARGINAL, 1 FAIL, 4 INVALID; 2 where a run could not be made. `invar
# validate` goes further: both runs take the same steps, and with --seeds 3 equivalence is tested.
set -euo pipefail

built="$(dirname "$0")/../build/bin/invar"
invar=${INVAR:-$([ -x "$built" ] && echo "$built" || echo invar)}

run() {
    "$invar" train trainer="$1" exp_name="$2" trainer.max_epochs=3 trainer.limit_val_batches=50 "${@:3}" --quiet || exit 2
}
echo "FP32 baseline: 3 epochs"
fp32=$(run default fp32_baseline "$@")
echo "FP16 with trainer=fp16_safe: 3 epochs"
fp16=$(run fp16_safe fp16_test "$@")
# Two batches to a step make half as many steps of the same data.
exec "$invar" compare "$fp32" "$fp16" --any-length --report "$(dirname "$fp16")/fp16_validation"
