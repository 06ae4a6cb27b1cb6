#!/usr/bin/env bash
# More than 50 MB of English prose out of Debian's own packages (the Bible, dictionaries, manuals), a BPE learned from it, and its
# tokens, with documents held out for validation. Needs a Debian with its package lists (apt-get update), python3 and no root. What it
# leaves in OUTDIR depends on the packages' versions alone, which it writes down.
#
#   bench/real_text.sh OUTDIR
#
# INVAR (build/bin/invar), VOCABULARY (50304: about GPT-2's, which makes its smallest model the 124M one, and a multiple of 128, which
# products on a GPU are fast with; at most 65536).
#
# OUTDIR/packages         the packages as they were fetched; fetched again only where they are missing
# OUTDIR/text             train/ and validation/, a file for each document, and sources.json: what came from where
# OUTDIR/tokens           train.bin, validation.bin, tokenizer.json, facts.json: all that bench/results_gpt.sh needs
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: bench/real_text.sh OUTDIR" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
invar=$(realpath "${INVAR:-$root/build/bin/invar}")
vocabulary=${VOCABULARY:-50304}
[ -x "$invar" ] || { echo "real_text.sh: $invar is not there; build it, or set INVAR" >&2; exit 2; }
mkdir -p "$1"
cd "$1"

names=$(python3 "$root/bench/real_text.py" --packages)
mkdir -p packages
for name in $names; do
    compgen -G "packages/${name}_*.deb" >/dev/null || (cd packages && apt-get download -q "$name")
done
rm -rf unpacked text tokens
for name in $names; do
    mkdir -p "unpacked/$name"
    dpkg-deb -x "$(compgen -G "packages/${name}_*.deb")" "unpacked/$name"
done
python3 "$root/bench/real_text.py" unpacked text
rm -rf unpacked

# The tokenizer is learned from what is trained on alone. The sort is by bytes, whatever the language of the system.
export LC_ALL=C
mkdir tokens
"$invar" tokenize text/train/*.txt --train "$vocabulary" --eot after -o tokens/train.bin --json >tokens/train.json
"$invar" tokenize text/validation/*.txt --tokenizer tokens/tokenizer.json --eot after -o tokens/validation.bin --json >tokens/validation.json
python3 "$root/bench/real_text.py" --facts packages text tokens >tokens/facts.json
rm tokens/train.json tokens/validation.json
sha256sum tokens/*.bin tokens/tokenizer.json
