#!/bin/sh
# Does Invar train as PyTorch does? From the same weights, on the same batches in the same order, with the same settings:
#   losses    FP32, dropout off, Adam and SGD: over the seeds, the first 20 losses are at most 3 times as far from PyTorch's in
#             f64 as those of PyTorch's own FP32
#   accuracy  one epoch of Fashion-MNIST in 32-true, 16-mixed and bf16-mixed, dropout off: within 0.5 points of PyTorch's
#   dropout   the same with dropout on in both, which draw their own random numbers
# Exit code 1 where one does not hold.
#
#   bench/torch_parity.sh                             # everything, some minutes
#   WHAT=losses MODELS=mlp bench/torch_parity.sh
#
# INVAR (build/bin/invar), PYTHON (/usr/bin/python3, with torch and numpy), THREADS (all cores), MODELS, WHAT,
# SEED (0; of the initial weights), SEEDS (1 2 3 4 5 7; those of the losses), OPTIMIZERS (adam sgd), DEVICE (cpu), DATA (the folder of the IDX files; /usr/share/datasets/fashion-mnist, package dataset-fashion-mnist).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
INVAR=${INVAR:-$root/build/bin/invar}
PYTHON=${PYTHON:-/usr/bin/python3}
THREADS=${THREADS:-$(nproc)}
MODELS=${MODELS:-mlp convnet}
WHAT=${WHAT:-losses accuracy dropout}
DATA=${DATA:-/usr/share/datasets/fashion-mnist}
DEVICE=${DEVICE:-cpu}
SEED=${SEED:-0}
SEEDS=${SEEDS:-1 2 3 4 5 7}
OPTIMIZERS=${OPTIMIZERS:-adam sgd}
export OMP_NUM_THREADS="$THREADS"

[ -x "$INVAR" ] || { echo "torch_parity.sh: $INVAR is not there; build it (ninja -C build invar_program) or set INVAR" >&2; exit 2; }
[ -d "$DATA" ] || { echo "torch_parity.sh: $DATA is not there; install dataset-fashion-mnist or set DATA" >&2; exit 2; }
"$PYTHON" -c 'import torch, numpy' 2>/dev/null ||
    { echo "torch_parity.sh: $PYTHON has no torch; install python3-torch or set PYTHON" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
adam="optimizer=adam optimizer.lr=1e-3"
rule=$adam
# shellcheck disable=SC2086
train() { # name, then the configuration
    name=$1
    shift
    "$INVAR" train "$@" data=fashion_mnist data.root="$DATA" data.batch_size=128 data.shuffle=false init_from="$weights" \
        $rule trainer.gradient_clip_val=1.0 trainer.max_epochs=1 output_dir="$work" \
        exp_name="$name" --device "$DEVICE" --threads "$THREADS" --quiet >/dev/null
}
peer() { "$PYTHON" "$root/bench/torch_parity.py" "$@" --data "$DATA" --threads "$THREADS" || failed=1; }
epochs() { # model, title, the option for the peer, then keys
    model=$1 title=$2 option=$3
    shift 3
    for precision in 32-true 16-mixed bf16-mixed; do
        train "$model-$title-$precision" model="$model" trainer.precision=$precision "$@"
    done
    # shellcheck disable=SC2086
    peer accuracy "$weights" "$work/$model-$title-32-true" "$work/$model-$title-16-mixed" "$work/$model-$title-bf16-mixed" \
        --title "$model, one epoch, $title" --tolerance 0.5 $option
}

cd "$root"
for model in $MODELS; do
    weights=$work/$model.safetensors
    "$INVAR" init "$weights" model="$model" data=fashion_mnist seed="$SEED" >/dev/null
    for what in $WHAT; do
        case $what in
        losses)
            for optimizer in $OPTIMIZERS; do
                lr=1e-3
                [ "$optimizer" = adam ] || lr=1e-2
                rule="optimizer=$optimizer optimizer.lr=$lr"
                [ "$optimizer" = adam ] || rule="$rule optimizer.momentum=0.9 optimizer.nesterov=false"
                for seed in $SEEDS; do
                    weights=$work/$model-$seed.safetensors
                    [ -e "$weights" ] || "$INVAR" init "$weights" model="$model" data=fashion_mnist seed="$seed" >/dev/null
                    name=$model-$optimizer-$seed
                    train "$name" model="$model" model.dropout=0 trainer.precision=32-true trainer.max_steps=20 \
                        trainer.log_every_n_steps=1
                    peer losses "$weights" "$work/$name/metrics.jsonl" --title "$model, $optimizer, seed $seed" \
                        --optimizer "$optimizer" --lr "$lr" --distances "$work/$model-$optimizer"
                done
                peer judge "$work/$model-$optimizer" --title "$model, $optimizer"
            done
            weights=$work/$model.safetensors rule=$adam
            ;;
        accuracy) epochs "$model" "dropout off" "" model.dropout=0 ;;
        dropout) [ "$model" = mlp ] || epochs "$model" "dropout on" --dropout ;; # the mlp has none of its own
        *) echo "torch_parity.sh: WHAT=$what: use losses, accuracy or dropout" >&2; exit 2 ;;
        esac
    done
done
exit $failed
