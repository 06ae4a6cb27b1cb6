#!/usr/bin/env bash
# Builds with AddressSanitizer and UndefinedBehaviorSanitizer and runs every test and example. Arguments go to ctest.
# SANITIZER=thread builds with ThreadSanitizer instead and runs the tests of what has threads of its own.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
kind=${SANITIZER:-address,undefined}
dir=build-${kind%%,*}
targets=(all)
selection=(-LE '^gpu$')
if [ "$kind" = thread ]; then
  folders=(core io dist data train diagnose validate)
  targets=("${folders[@]/#/test_}")
  selection=(-L "^($(IFS='|'; echo "${folders[*]}"))\$")
  export OMP_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1
fi
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINVAR_SANITIZE="$kind" -DINVAR_CUDA=OFF -DINVAR_BENCH=OFF >/dev/null
cmake --build "$dir" --target "${targets[@]}"
ctest --test-dir "$dir" --output-on-failure --progress -j "$(nproc)" "${selection[@]}" "$@"
