#!/usr/bin/env bash
# What the monitors cost: the same runs with and without them, in turns. Prints the seconds of training and of CPU time
# of each run, and the ratio of the medians.
#   ROUNDS=5 STEPS=600 bench/monitor_cost.sh [model=mlp data.batch_size=128 ...]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5} steps=${STEPS:-600}
invar=${INVAR:-build/bin/invar}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TIMEFORMAT='%U %S'
for round in $(seq "$rounds"); do
    for on in true false; do
        rm -rf "$folder/run"
        { time "$invar" train synthetic "$@" --quiet output_dir="$folder" exp_name=run trainer.max_epochs=1000 \
            trainer.max_steps="$steps" trainer.limit_val_batches=0 monitor.enabled=$on >/dev/null; } 2>"$folder/time"
        cpu=$(tail -n 1 "$folder/time" | awk '{print $1 + $2}')
        wall=$(grep -o '"train_seconds":[0-9.e+-]*' "$folder/run/summary.json" | cut -d: -f2)
        echo "$on $wall $cpu" | tee -a "$folder/times"
    done
done
median() { grep "^$1 " "$folder/times" | awk "{print \$$2}" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
awk -v on="$(median true 2)" -v off="$(median false 2)" -v con="$(median true 3)" -v coff="$(median false 3)" \
    'BEGIN {printf "training time %+.2f%%, CPU time %+.2f%%\n", 100 * (on / off - 1), 100 * (con / coff - 1)}'
