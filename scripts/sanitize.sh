#!/usr/bin/env bash
# Builds with AddressSanitizer and UndefinedBehaviorSanitizer and runs the tests of everything that reads what others wrote,
# and of the engine. Arguments go to ctest; INVAR_SANITIZE=thread builds for ThreadSanitizer instead.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
kind=${INVAR_SANITIZE:-address,undefined}
dir=build-${kind%%,*}
cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINVAR_SANITIZE="$kind" -DINVAR_BENCH=OFF -DINVAR_EXAMPLES=OFF >/dev/null
targets=(test_core test_io test_data test_amp test_ops test_optim test_train)
cmake --build "$dir" --target "${targets[@]}"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" -L 'core|io|data|amp|ops|optim|train' "$@"
