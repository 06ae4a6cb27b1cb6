#!/usr/bin/env bash
# Runs the tests labelled gpu and the GPU benchmarks from the relocatable tarball, on a machine that has nothing of ours
# but that file, and prints one table at the end. Usage: gpu-test.sh [TARBALL or unpacked folder] [gtest arguments]
# SANITIZE=1 also runs the tests of the ops under compute-sanitizer, for bad accesses and for races; BENCH=0 leaves the
# benchmarks out.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
package=${1:-}
[ $# -gt 0 ] && shift
if [ -z "$package" ]; then
    package=$(ls -t "$here"/../build*/invar-*.tar.gz 2>/dev/null | head -1)
    [ -x "$here/test_gpu" ] && package=$here/../..
fi
if [ -z "$package" ]; then
    echo "gpu-test.sh: there is no tarball; make one with: cpack -G TGZ --config build/CPackConfig.cmake -B build" >&2
    exit 2
fi

root=$package
if [ -f "$package" ]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    tar -xzf "$package" -C "$unpacked" || exit 1
    root=$(echo "$unpacked"/*)
fi

# CUDA's libraries may lie where no loader looks, in a Python package for one.
for library in libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13; do
    ldconfig -p 2>/dev/null | grep -q "$library" && continue
    found=$(find -L /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib /usr/local/lib /opt -maxdepth 9 -name "$library" -print -quit 2>/dev/null)
    [ -n "$found" ] && LD_LIBRARY_PATH=$(dirname "$found"):${LD_LIBRARY_PATH:-}
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

logs=${OUT:-$(mktemp -d)}
failures=0
rows=()
row() { rows+=("$(printf '%-28s %s' "$1" "$2")"); }

"$root"/libexec/invar/test_gpu "$@" >"$logs/test_gpu.log" 2>&1
status=$?
[ $status -eq 0 ] || failures=$((failures + 1))
grep -E '^\[  (FAILED|SKIPPED)' "$logs/test_gpu.log" | sort -u | head -40
passed=$(grep -c '^\[       OK' "$logs/test_gpu.log")
failed=$(grep -cE '^\[  FAILED  \] [^ ]+ \(|^\[  FAILED  \] [^ ]+, where' "$logs/test_gpu.log")
skipped=$(grep -cE '^\[  SKIPPED \] [^ ]+ \(' "$logs/test_gpu.log")
row "tests (exit $status)" "$passed passed, $failed failed, $skipped skipped"

# What each tool needs to see: every kernel in every format; the long tests of sizes would take it hours.
sanitize() {
    local tool=$1 filter=$2 log=$logs/sanitize_$1.log
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$root"/libexec/invar/test_gpu --gtest_filter="$filter" >"$log" 2>&1
    local code=$?
    row "compute-sanitizer $tool" "exit $code, $(grep -c '^\[       OK' "$log") tests, $(grep 'SUMMARY' "$log" | tail -1 | sed 's/=* *//')"
    [ $code -ne 0 ] && failures=$((failures + 1))
}
if [ "${SANITIZE:-0}" = 1 ]; then
    sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        sanitize memcheck '*GpuOps*:*GpuRows*:*GpuSizes*:*OptimizersStep*'
        sanitize racecheck '*GpuOps*f32*:*GpuOps*bf16*:*GpuRows*bf16*:*OptimizersStep*'
    else
        row "compute-sanitizer" "not on this machine"
    fi
fi

bench() {
    local name=$1
    shift
    if "$root"/bin/invar bench --device cuda "$@" >"$logs/bench_$name.log" 2>&1; then
        row "bench $name" ""
        while IFS= read -r line; do rows+=("    $line"); done <"$logs/bench_$name.log"
    else
        row "bench $name" "FAILED: $(tail -1 "$logs/bench_$name.log")"
        failures=$((failures + 1))
    fi
}
kernels() {
    "$root"/libexec/invar/gpu_kernels >"$logs/gpu_kernels.log" 2>&1
    local code=$?  # 1: it ran, and missed a bar
    row "kernels" "$(tail -1 "$logs/gpu_kernels.log")"
    while IFS= read -r line; do rows+=("    $line"); done < <(head -n -1 "$logs/gpu_kernels.log")
    [ $code -gt 1 ] && failures=$((failures + 1))
}
if [ "${BENCH:-1}" = 1 ]; then
    [ -x "$root/libexec/invar/gpu_kernels" ] && kernels
    fast="trainer.deterministic=false trainer.gradient_clip_val=1.0 optimizer.name=adamw"
    precisions=32-true,tf32,16-mixed,bf16-mixed
    bench convnet_128 $fast data.batch_size=128 --precisions $precisions --steps 50 --warmup 10
    bench convnet_4096 $fast data.batch_size=4096 --precisions $precisions --steps 20 --warmup 5
    bench mlp_32 $fast model.name=mlp data.batch_size=32 --precisions $precisions --steps 50 --warmup 10
fi
# PyTorch on the same card, where it and its side of the comparison are: PEER=path of bench/torch_gpu_peer.py.
if [ -n "${PEER:-}" ]; then
    python3 "$PEER" >"$logs/peer.log" 2>&1 || failures=$((failures + 1))
    row "peer" ""
    while IFS= read -r line; do rows+=("    $line"); done < <(grep -E ' ms$|failed|^PyTorch' "$logs/peer.log")
fi

echo "--- the whole logs are in $logs"
printf '%s\n' "${rows[@]}"
exit $((failures > 0))
