#!/usr/bin/env bash
# GPT-2 124M on real text in FP32, 16-mixed and bf16-mixed, judged by its validation loss: `invar validate` seed after seed, until the
# verdict over all of them (`invar compare`) is PASS or FAIL, or there are no more seeds or no more time. Then, or when it is stopped,
# OUTDIR has seven files: report.md, report.html, report.json, samples.jsonl, facts.json (of the text), log.txt, and runs.tar.gz, the
# folders of all runs without their checkpoints. bench/results_table.py makes tables and curves of them. Exit codes are the verdict's.
#
#   bench/real_text.sh text && bench/results_gpt.sh text/tokens results
#   FIRST_SEED=3 RUNS=results/runs.tar.gz bench/results_gpt.sh text/tokens more       # goes on with further seeds
#
# INVAR (build/bin/invar), DEVICE (cuda), LEAST_SEEDS (3), MOST_SEEDS (8, those of RUNS among them), FIRST_SEED (0), RUNS, LIMIT_S (330: no
# seed is begun that would end later), WORK (a folder for checkpoints, 1.5 GB for each precision; a temporary one).
# The model is GPT-2's smallest: LAYERS (12), HEADS (12), WIDTH (768), LENGTH (1024). The run: BATCH (8), STEPS (360), LR (6e-4), WARMUP
# (40), VAL_BATCHES (1.0, all of them), VAL_EVERY (60), SAMPLE_TOKENS (120).
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: bench/results_gpt.sh TOKENS OUTDIR" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
invar=$(realpath "${INVAR:-$root/build/bin/invar}")
[ -x "$invar" ] || { echo "results_gpt.sh: $invar is not there; build it, or set INVAR" >&2; exit 2; }
for file in train.bin validation.bin tokenizer.json facts.json; do
    [ -e "$1/$file" ] || { echo "results_gpt.sh: $1/$file is not there; bench/real_text.sh makes it" >&2; exit 2; }
done
tokens=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
earlier=${RUNS:+$(realpath "$RUNS")}
device=${DEVICE:-cuda} least=${LEAST_SEEDS:-3} most=${MOST_SEEDS:-8} seed=${FIRST_SEED:-0} limit=${LIMIT_S:-330}
steps=${STEPS:-360}

# CUDA's libraries may lie where no loader looks, in a Python package for one.
[ "$device" = cpu ] || for library in libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13; do
    grep -q "$library" <<<"$(ldconfig -p 2>/dev/null)" && continue
    found=$(find -L /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib /usr/local/lib /opt -maxdepth 9 -name "$library" -print -quit 2>/dev/null || true)
    [ -z "$found" ] || LD_LIBRARY_PATH=$(dirname "$found"):${LD_LIBRARY_PATH:-}
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
cd "$work"                    # what is written down names no other folder
export XDG_STATE_HOME=$work   # this validation is a measurement, not somebody's leave to train
rm -rf runs tokens
ln -s "$tokens" tokens
mkdir runs
[ -z "$earlier" ] || tar -xzf "$earlier"
cp tokens/facts.json "$out/"
: >"$out/samples.jsonl"
: >"$out/log.txt"

configuration=(gpt data=tokens data.path=tokens/train.bin data.test_path=tokens/validation.bin data.tokenizer=tokens/tokenizer.json
    data.length="${LENGTH:-1024}" data.batch_size="${BATCH:-8}"
    model.layers="${LAYERS:-12}" model.heads="${HEADS:-12}" model.width="${WIDTH:-768}" model.dropout=0
    optimizer=adamw optimizer.lr="${LR:-6e-4}" 'optimizer.betas=[0.9,0.95]' optimizer.weight_decay=0.1
    scheduler=cosine scheduler.warmup_steps="${WARMUP:-40}"
    trainer.gradient_clip_val=1.0 trainer.deterministic=false trainer.max_steps="$steps" trainer.log_every_n_steps=10
    trainer.val_check_interval="${VAL_EVERY:-60}" trainer.limit_val_batches="${VAL_BATCHES:-1.0}" trainer.keep_checkpoints=1
    output_dir=runs)

list() { # precision: the folders of its runs, as invar compare takes them
    find runs -mindepth 2 -maxdepth 2 -type d -name "$1" | sort -V | paste -sd,
}
# Everything but checkpoints, as far as it has come.
pack() { tar -czf "$out/runs.tar.gz" --exclude=checkpoints --exclude='events.out.*' --exclude=.lock runs; }
verdict() { # sets $code
    code=0
    "$invar" compare "$(list fp32)" "$(list 16-mixed)" "$(list bf16-mixed)" --metric val_loss --report report >verdict.txt 2>&1 || code=$?
    [ ! -e report ] || cp report/report.* "$out/"
}
# Each precision writes with what seed it has just trained, all three at once.
write_samples() {
    local run prompt
    for run in fp32 16-mixed bf16-mixed; do
        for prompt in "In the beginning" "Free software is" "A computer is a machine that"; do
            "$invar" sample "runs/seed$seed/$run" "$prompt" --device "$device" --tokens "${SAMPLE_TOKENS:-120}" --temperature 0.8 --top-k 50 \
                --seed 1 --json 2>>"sample_$run.err" | sed "s/^{/{\"run\":\"$run\",\"seed\":$seed,/" || true
        done >"sample_$run.jsonl" &
    done
    wait
    cat sample_*.jsonl >>"$out/samples.jsonl"
    cat sample_*.err >>"$out/log.txt"
}

began=$SECONDS longest=0 code=2
while :; do
    started=$SECONDS code=0
    rm -rf "runs/seed$seed"
    "$invar" validate "${configuration[@]}" seed="$seed" exp_name="seed$seed" --metric val_loss --device "$device" 2>&1 | tee -a "$out/log.txt" || code=$?
    case $code in 0 | 1 | 3) ;; *) pack; echo "results_gpt.sh: seed $seed was not judged: exit code $code" >&2; exit "$code" ;; esac
    took=$((SECONDS - started)) # without the samples, which are written once
    [ $took -le $longest ] || longest=$took
    [ -s "$out/samples.jsonl" ] || write_samples
    rm -rf runs/seed*/*/checkpoints
    pack
    verdict
    seeds=$(find runs -mindepth 1 -maxdepth 1 -name 'seed*' | wc -l)
    echo "seed $seed took $took s; $((SECONDS - began)) s so far; verdict over $seeds seeds: exit code $code" | tee -a "$out/log.txt"
    seed=$((seed + 1))
    [ "$seeds" -lt "$most" ] || break
    [ "$seeds" -lt "$least" ] || [ $code -eq 3 ] || break # PASS and FAIL need no more
    if [ $((SECONDS - began + longest)) -gt "$limit" ]; then
        echo "no time for another seed: LIMIT_S=$limit; go on with FIRST_SEED=$seed RUNS=runs.tar.gz" | tee -a "$out/log.txt"
        break
    fi
done
tee -a "$out/log.txt" <verdict.txt
exit $code
