#!/usr/bin/env bash
# Adds the pointwise op of docs/ADDING_AN_OP.md to a copy of the tree by its struct, its row in the list behind it and its row in the table of
# cases, and by nothing else; builds what that touches, and sees the op in `invar ops`, in the documents and on both devices.
# The copy stays in build/one_op with its builds in it, as in any checkout, so that the next time is shorter and ccache knows most of the first.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$PWD/build/one_op
cpu=$tree/build cuda=$tree/build-cuda
struct=Softsign name=softsign

say() { printf '\n-- %s\n' "$*"; }
fail() { printf 'one_op: %s\n' "$*" >&2; exit 1; }
configure() { cmake -S "$tree" -B "$@" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINVAR_BENCH=OFF -DINVAR_EXAMPLES=OFF >/dev/null; }

# With their times: only what is patched is newer than what was built of it.
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name 'build*' -exec rm -rf {} +
tar --exclude='./build*' --exclude=./.git --exclude=./runs -cf - . | tar -xf - -C "$tree"

say "the patch"
definition=$(awk '/test: frame pointwise_op/ { found = 1 } /^```/ { if (inside) exit; inside = found; next } inside' docs/ADDING_AN_OP.md)
grep -q "struct $struct" <<<"$definition" || fail "docs/ADDING_AN_OP.md has no struct $struct"
list=$tree/invar/kernels/pointwise.h cases=$tree/tests/ops/cases.cpp
if grep -qw "$struct" "$list"; then fail "there is an op $struct already"; fi
definition=$definition awk -v row="X($struct, $name)" '
  /^\/\/ --- binary: / { print ENVIRON["definition"] "\n" }
  { sub(/X\(Clamp, clamp, low, high\)/, "& " row); print }' "$list" >"$list.new"
awk -v row="        {\"$name\", CastClass::keep, $name, -2, 2, 1}," '{ print } /^        \{"clamp", / { print row }' "$cases" >"$cases.new"
for file in "$list" "$cases"; do
  if diff -u "$file" "$file.new"; then fail "$file: found no place for the op"; fi
  mv "$file.new" "$file"
done

say "on the CPU, in \`invar ops\` and in the documents"
configure "$cpu" -DINVAR_CUDA=OFF
cmake --build "$cpu" --target invar_program ops_document test_ops
"$cpu/bin/invar" ops | grep "^$name " || fail "\`invar ops\` does not list it"
grep "^| $name |" "$cpu/docs/OPS.md" || fail "docs/OPS.md does not list it"
"$cpu/bin/test_ops" --gtest_brief=1 --gtest_filter='CastClasses.*:GradientCheck.*:Layouts/Gradients.*:Formats/LowPrecision*:*NonFinite*'

say "on the GPU"
configure "$cuda"
object=$(ninja -C "$cuda" -t targets all | sed -n 's/^\([^ ]*cuda\/pointwise_unary\.cu\.o\):.*/\1/p')
if [ -z "$object" ]; then
  echo "skipped: $(sed -n 's/^INVAR_NVCC:.*=\(.*NOTFOUND\)$/no nvcc/p' "$cuda/CMakeCache.txt" | head -1 | grep . || echo "CUDA's libraries are not all there")"
elif ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  cmake --build "$cuda" --target "$object"
  echo "compiled; running it skipped: no GPU"
else
  cmake --build "$cuda" --target test_gpu invar_cuda
  "$cuda/bin/test_gpu" --gtest_brief=1 --gtest_filter='*Gradients*:GpuCases.*'
fi
say "one struct, one row in the list, one row in the table: the op $name is everywhere"
