#!/usr/bin/env bash
# Every command on the parts of this example, as its own program and as a plug-in of the stock one. usage: test.sh PREFIX BUILD WORK,
# with the folders of an installed Invar, of the example's build, and one to work in. DEVICE=cuda runs it on a GPU.
set -euo pipefail
prefix=$1 build=$2 work=$3
device=${DEVICE:-cpu}
if [ "$device" = cuda ] && ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "skipped: no GPU"
  exit 0
fi
rm -rf "$work" && mkdir -p "$work" && cd "$work"
export XDG_STATE_HOME=$work/state
parts=(model=residual_net model.width=8 data=shapes data.size=1600 data.batch_size=32 task=worst_class optimizer.lr=0.01)
small=("${parts[@]}" trainer.device="$device" trainer.threads=1 trainer.max_epochs=4)

fail() { echo "own_model ($way): $*" >&2; exit 1; }
expect() {  # CODE PATTERN COMMAND...: the exit code and a line of what it says
  local code=$1 pattern=$2 said got=0
  shift 2
  said=$("$@" 2>&1) || got=$?
  [ "$got" = "$code" ] || fail "$* exits with $got and not $code: $said"
  grep -qE -- "$pattern" <<<"$said" || fail "$* does not say '$pattern': $said"
}
weights() { find "$1/checkpoints" -name '*.safetensors' | sort | tail -1; }

for way in program plugin; do
  if [ $way = program ]; then own=("$build/own_model"); else own=("$prefix/bin/invar" --plugin "$build/libown_plugin.so"); fi
  expect 0 'model.blocks=2' "${own[@]}" train --help
  expect 0 'model.blocks=' "${own[@]}" completion bash
  expect 2 "did you mean 'model.blocks'" "${own[@]}" train "${small[@]}" model.block=3
  expect 2 'from 1 to 100' "${own[@]}" train "${small[@]}" model.blocks=0

  expect 0 'PASS' "${own[@]}" check "${small[@]}"
  # An uninterrupted run, and one that is killed and resumed: the same weights to the byte.
  every=(trainer.checkpoint_every_n_steps=10 trainer.val_check_interval=1.0 trainer.precision=bf16-mixed)
  expect 0 'worst_recall' "${own[@]}" train "${small[@]}" "${every[@]}" exp_name=$way
  mv runs/$way runs/$way-whole
  "${own[@]}" train "${small[@]}" "${every[@]}" exp_name=$way >killed.log 2>&1 &
  pid=$!
  for _ in $(seq 600); do [ -n "$(weights runs/$way 2>/dev/null)" ] && break; sleep 0.05; done
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  expect 0 'worst_recall' "${own[@]}" train --resume runs/$way
  cmp "$(weights runs/$way-whole)" "$(weights runs/$way)" || fail "a resumed run has other weights"
  if [ $way = plugin ]; then own=("$prefix/bin/invar"); fi  # a run remembers its plug-in
  expect 0 'worst_recall' "${own[@]}" eval runs/$way-whole
  if [ $way = plugin ]; then own+=(--plugin "$build/libown_plugin.so"); fi

  expect 0 'PASS' "${own[@]}" validate "${small[@]}" exp_name=$way-valid --candidates bf16-mixed --margin 0.1
  # Pixels that FP16 cannot hold: the first convolution is to blame.
  expect 1 'stem' "${own[@]}" diagnose "${small[@]}" data.brightness=1e6 --as fp16 --steps 2
  expect 0 'bf16' "${own[@]}" tune "${small[@]}" --as bf16 --steps 4 --no-validate
  recorded='bf16-mixed'
  if [ "$device" = cuda ]; then recorded='replayed as a CUDA graph'; fi
  expect 0 "$recorded" "${own[@]}" bench "${small[@]}" --steps 3 --precisions 32-true,bf16-mixed
  expect 0 'parameters' "${own[@]}" init "${small[@]}" $way.safetensors
done
way=plugin
expect 2 'there is no plug-in' "$prefix/bin/invar" --plugin nowhere.so train
expect 2 'is no plug-in of Invar' "$prefix/bin/invar" --plugin "$build/CMakeCache.txt" train
echo "own_model: all commands as program and plug-in on $device"
