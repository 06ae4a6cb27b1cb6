#!/usr/bin/env bash
# A network that a user writes, as a plug-in, beside the same one built in: milliseconds a step, in turns, and the ratio of the best.
# usage: [MODEL=gpt] own_vs_built_in.sh INVAR PLUGIN [key=value ...]     (1.00 is the same; above is faster)
# MODEL is convnet, or gpt with own_gpt.so.
set -euo pipefail
invar=$1 plugin=$2
shift 2
built_in=${MODEL:-convnet}
case $built_in in
  gpt) data=(task=language data=chains data.length=256 data.vocabulary=257 data.batch_size=8) ;;
  *) data=(data=synthetic) ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
measure() { "$invar" --plugin "$plugin" bench "${data[@]}" "model=$1" --precisions 32-true,16-mixed,bf16-mixed --steps 20 --json "${@:2}"; }
for turn in 1 2 3; do
  for model in $built_in own_$built_in; do measure $model "$@" >"$folder/$model.$turn"; done
done
python3 - "$folder" "$built_in" <<'P'
import json, sys
def best(model):
    found = {}
    for turn in (1, 2, 3):
        for line in open(f"{sys.argv[1]}/{model}.{turn}"):
            r = json.loads(line)
            found[r["precision"]] = min(found.get(r["precision"], 1e9), r["fastest_ms"])
    return found
ours, own = best(sys.argv[2]), best("own_" + sys.argv[2])
print("precision    built in ms   own ms   ratio")
for p in ours: print(f"{p:<12} {ours[p]:11.4f} {own[p]:8.4f}   {ours[p] / own[p]:.3f}")
P
