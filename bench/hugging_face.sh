#!/usr/bin/env bash
# Are Invar's folders Hugging Face's, and the other way round? Tiny models are trained for some steps and exported in f32, in bf16 and in
# shards, and that library loads them; then that library makes models with random weights, and Invar reads them. Logits behind a prompt,
# greedy text and tokens must agree. A line for each folder; exit code 1 where one differs. On the CPU, under a minute or two.
#
#   bench/hugging_face.sh [INVAR]                 # build/bin/invar
#
# PYTHON (python3, with transformers and torch), TEXT (the text to learn; LICENSE of this project).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
invar=$(realpath "${1:-$root/build/bin/invar}")
python=${PYTHON:-python3}
text=$(realpath "${TEXT:-$root/LICENSE}")
[ -x "$invar" ] || { echo "hugging_face.sh: $invar is not there; build it, or name another" >&2; exit 2; }
"$python" -c 'import torch, transformers' ||
    { echo "hugging_face.sh: $python has no torch or no transformers; install them or set PYTHON" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_STATE_HOME=$work HF_HUB_OFFLINE=1
prompt="the software is"
arguments=()

ask() { # name, folder: what Invar makes of it
    "$invar" sample "$2" "$prompt" --device cpu --tokens 32 --temperature 0 --json --logits >"$1.json" || return 1
    arguments+=("$1" "$2" "$1.json")
}
make_run() { # name, then keys
    local name=$1
    shift
    "$invar" train gpt data=text data.path="$text" data.length=64 data.batch_size=8 model.layers=2 model.heads=6 model.width=48 \
        trainer.max_steps=40 trainer.max_epochs=10 scheduler.warmup_steps=5 trainer.limit_val_batches=1 output_dir=runs exp_name="$name" "$@" --device cpu --quiet >/dev/null
    "$invar" export "runs/$name" "$name-f32" --device cpu >/dev/null
    "$invar" export "runs/$name" "$name-bf16" --dtype bf16 --device cpu >/dev/null
    "$invar" export "runs/$name" "$name-shards" --max-shard-size 40KB --device cpu >/dev/null
    for kind in f32 bf16 shards; do ask "$name-$kind" "$name-$kind"; done
}

"$invar" tokenize "$text" --train 400 -o text.bin >/dev/null # tokenizer.json beside it
make_run gpt
make_run gpt_bpe data.tokenizer=tokenizer.json
make_run llama_tied model=llama model.layers=2 model.heads=6 model.width=48 model.kv_heads=2
make_run llama_bpe model=llama model.layers=2 model.heads=6 model.width=48 model.kv_heads=2 model.tied=false data.tokenizer=tokenizer.json
make_run llama3_rope model=llama model.layers=2 model.heads=6 model.width=48 model.rope_scaling=llama3 model.rope_factor=4 model.rope_original_length=16
make_run qwen2 model=llama model.layers=2 model.heads=6 model.width=48 model.kv_heads=2 model.attention_bias=true
make_run qwen2_bpe model=llama model.layers=2 model.heads=6 model.width=48 model.kv_heads=2 model.attention_bias=true model.tied=false data.tokenizer=tokenizer.json

"$python" "$root/bench/hugging_face.py" make theirs
unread=0
for folder in theirs/*; do
    ask "theirs-$(basename "$folder")" "$folder" && continue
    echo "differs  theirs-$(basename "$folder"): Invar does not read it (above)"
    unread=1
done
"$python" "$root/bench/hugging_face.py" compare "${arguments[@]}" && exit $unread
