#!/bin/sh
# A training step of Invar beside PyTorch's on this CPU: both sides in turn, in one run, so that what else the machine
# does meets them alike. Ends on a table of ratios with the bars they are held to; exit code 1 where one is missed.
#
#   bench/cpu_vs_torch.sh                       # three rounds
#   ROUNDS=1 STEPS=5 SKIP_BF16=1 bench/cpu_vs_torch.sh
#
# INVAR (build/bin/invar), PYTHON (/usr/bin/python3, with torch), THREADS (all cores), ROUNDS (3), STEPS (20 a round),
# SKIP_BF16: leave out PyTorch's bf16, which takes seconds a step where the CPU has no native BF16.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
INVAR=${INVAR:-$root/build/bin/invar}
PYTHON=${PYTHON:-/usr/bin/python3}
THREADS=${THREADS:-$(nproc)}
ROUNDS=${ROUNDS:-3}
STEPS=${STEPS:-20}
export OMP_NUM_THREADS="$THREADS"

[ -x "$INVAR" ] || { echo "cpu_vs_torch.sh: $INVAR is not there; build it (ninja -C build invar_program) or set INVAR" >&2; exit 2; }
"$PYTHON" -c 'import torch' 2>/dev/null ||
    { echo "cpu_vs_torch.sh: $PYTHON has no torch; install python3-torch or set PYTHON" >&2; exit 2; }

results=$(mktemp)
trap 'rm -f "$results"' EXIT
invar() { # work, then the configuration
    work=$1
    shift
    "$INVAR" bench "$@" trainer.gradient_clip_val=1.0 optimizer=adam optimizer.lr=1e-3 --device cpu --threads "$THREADS" \
        --steps "$STEPS" --json | sed "s/^{/{\"side\": \"invar\", \"work\": \"$work\", /" >>"$results"
}
torch() { # work, precision, steps
    "$PYTHON" "$root/bench/torch_cpu_peer.py" --work "$1" --precision "$2" --threads "$THREADS" --steps "$3" \
        --warmup "$4" | sed 's/^{/{"side": "torch", /' >>"$results"
}

cd "$root"
round=1
while [ "$round" -le "$ROUNDS" ]; do
    echo "round $round of $ROUNDS ..." >&2
    torch convnet fp32 "$STEPS" 2
    invar convnet model=convnet data.batch_size=128
    torch mlp fp32 "$STEPS" 2
    invar mlp model=mlp 'model.hidden=[2048,2048]' data.batch_size=512
    torch gpt fp32 "$STEPS" 2
    invar gpt gpt data=chains data.length=256 data.vocabulary=257 data.batch_size=8
    if [ -z "${SKIP_BF16:-}" ] && [ "$round" -eq 1 ]; then
        torch convnet bf16 2 1
        torch mlp bf16 1 1
        torch gpt bf16 2 1
    fi
    round=$((round + 1))
done
"$PYTHON" "$root/bench/compare_cpu.py" "$results"
