#!/usr/bin/env bash
# Builds every libFuzzer target with clang, ASan and UBSan, and runs each for so many seconds (default 60).
set -euo pipefail
. "$(dirname "$0")/setup.sh"

seconds=${1:-60}
install_packages "${invar_packages[@]}" clang
install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" "libomp-$(clang -dumpversion | cut -d. -f1)-dev"
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINVAR_FUZZ=ON \
  -DINVAR_SANITIZE=address,undefined,fuzzer-no-link -DINVAR_BENCH=OFF -DINVAR_EXAMPLES=OFF >/dev/null
cd build-fuzz
for source in ../tests/fuzz/*.cpp; do
  name=$(basename "$source" .cpp)
  ninja "fuzz_$name"
  mkdir -p "corpus/$name"
  echo "fuzz_$name for $seconds s"
  "bin/fuzz_$name" -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1 "corpus/$name" 2>&1 | tail -n 8
done
