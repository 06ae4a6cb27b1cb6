#!/usr/bin/env bash
# Builds with AddressSanitizer and UndefinedBehaviorSanitizer and runs the tests of everything that reads what others wrote,
# and of the engine. Arguments go to ctest. SANITIZER=thread builds with ThreadSanitizer instead and runs the tests of what
# has threads of its own.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
kind=${SANITIZER:-address,undefined}
dir=build-${kind%%,*}
folders=(core io data amp ops optim train safety report cli)
if [ "$kind" = thread ]; then
  folders=(core io data train safety)
  # libgomp's own locks are not instrumented, and every parallel loop would be reported.
  export OMP_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1
fi
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINVAR_SANITIZE="$kind" -DINVAR_CUDA=OFF -DINVAR_BENCH=OFF -DINVAR_EXAMPLES=OFF >/dev/null
cmake --build "$dir" --target "${folders[@]/#/test_}"
ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" -L "^($(IFS='|'; echo "${folders[*]}"))\$" "$@"
