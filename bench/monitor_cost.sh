#!/usr/bin/env bash
# What the monitors cost: the same runs with and without them, in pairs whose order changes from one to the next. Prints
# the seconds of training and of CPU time of each run, and the medians over the pairs.
#   ROUNDS=9 STEPS=600 bench/monitor_cost.sh [model=mlp data.batch_size=128 ...]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-9} steps=${STEPS:-600}
invar=${INVAR:-build/bin/invar}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TIMEFORMAT='%U %S'
for round in $(seq "$rounds"); do
    order="true false"
    [ $((round % 2)) = 0 ] && order="false true"
    for on in $order; do
        rm -rf "$folder/run"
        { time "$invar" train synthetic "$@" --quiet output_dir="$folder" exp_name=run trainer.max_epochs=1000 \
            trainer.max_steps="$steps" trainer.limit_val_batches=0 monitor.enabled=$on >/dev/null; } 2>"$folder/time"
        cpu=$(tail -n 1 "$folder/time" | awk '{print $1 + $2}')
        wall=$(grep -o '"train_seconds":[0-9.e+-]*' "$folder/run/summary.json" | cut -d: -f2)
        echo "$on $wall $cpu" | tee -a "$folder/times"
    done
done
# One line a pair: the differences in percent.
paste -d' ' <(grep ^true "$folder/times") <(grep ^false "$folder/times") |
    awk '{print 100 * ($2 / $5 - 1), 100 * ($3 / $6 - 1)}' >"$folder/pairs"
median() { awk "{print \$$1}" "$folder/pairs" | sort -g | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'; }
printf 'with monitors: training time %+.2f%%, CPU time %+.2f%%\n' "$(median 1)" "$(median 2)"
