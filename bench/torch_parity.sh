#!/bin/sh
# Does Invar train as PyTorch does? From the same weights, on the same batches in the same order, with the same settings:
#   losses    FP32, dropout off, Adam and SGD, of transformers AdamW: over the seeds, the first 20 losses are at most 3 times as far
#             from PyTorch's in f64 as those of PyTorch's own FP32. Of transformers in 16 bits too: the median within 16 roundings of the
#             format, the worst at most 3 times PyTorch's FP32, as much coarser as the format is
#   accuracy  one epoch of Fashion-MNIST in 32-true, 16-mixed and bf16-mixed, dropout off: within 0.5 points of PyTorch's
#   dropout   the same with dropout on in both, which draw their own random numbers
# Exit code 1 where one does not hold.
#
#   bench/torch_parity.sh                             # everything, some minutes
#   WHAT=losses MODELS=mlp bench/torch_parity.sh
#   WHAT=losses MODELS="gpt llama vit" SEEDS="1 2 3 4 5" THREADS=1 bench/torch_parity.sh
#
# INVAR (build/bin/invar), PYTHON (/usr/bin/python3, with torch and numpy), THREADS (all cores), MODELS, WHAT,
# SEED (0; of the initial weights), SEEDS (1 2 3 4 5 7; those of the losses), OPTIMIZERS (adam sgd), LR (3e-4; of transformers: at 1e-3, without a warm-up,
# their losses jump now and then), DEVICE (cpu), DATA (the folder of the IDX files; /usr/share/datasets/fashion-mnist, package dataset-fashion-mnist).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
INVAR=${INVAR:-$root/build/bin/invar}
PYTHON=${PYTHON:-/usr/bin/python3}
THREADS=${THREADS:-$(nproc)}
MODELS=${MODELS:-mlp convnet gpt llama vit}
WHAT=${WHAT:-losses accuracy dropout}
DATA=${DATA:-/usr/share/datasets/fashion-mnist}
DEVICE=${DEVICE:-cpu}
SEED=${SEED:-0}
SEEDS=${SEEDS:-1 2 3 4 5 7}
OPTIMIZERS=${OPTIMIZERS:-adam sgd}
LR=${LR:-3e-4}
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
# What a model is trained on, in words for Invar (net, data) and for PyTorch (options), and by which rules. Transformers are
# small, so that PyTorch's f64 takes seconds.
choose() {
    rules=$OPTIMIZERS batch=128 options="" still=model.dropout=0 data="data=fashion_mnist data.root=$DATA" net="model=$1"
    text="data=text data.path=$root/LICENSE data.length=64 data.test_share=0.05"
    case $1 in
    gpt)
        net="task=language model=gpt model.layers=6 model.heads=4 model.width=128" data=$text
        rules=adamw batch=8 options="--heads 4 --text $root/LICENSE --length 64"
        ;;
    llama)
        net="task=language model=llama model.layers=4 model.heads=6 model.kv_heads=2 model.width=96" data=$text
        rules=adamw batch=8 options="--heads 6 --text $root/LICENSE --length 64"
        ;;
    vit) net="model=vit_ti model.patch=7" rules=adamw batch=8 options="--heads 3" ;;
    esac
    [ "$rules" != adamw ] || still="" # no dropout unless it is asked for
}
init() { # file, seed
    # shellcheck disable=SC2086
    [ -e "$1" ] || "$INVAR" init "$1" $net $data seed="$2" >/dev/null
}
# shellcheck disable=SC2086
train() { # name, then the configuration
    folder=$1
    shift
    "$INVAR" train $net $data "$@" data.batch_size=$batch data.shuffle=false init_from="$weights" \
        $rule trainer.gradient_clip_val=1.0 trainer.max_epochs=1 output_dir="$work" \
        exp_name="$folder" --device "$DEVICE" --threads "$THREADS" --quiet >/dev/null
}
# The first steps in this precision; its folder is $work/NAME.
first_steps() { # name, precision
    # shellcheck disable=SC2086
    train "$1" $still trainer.precision="$2" trainer.max_steps=20 trainer.log_every_n_steps=1 trainer.limit_val_batches=0 scaler.init_scale=1024 # no step is skipped to find it
}
peer() { "$PYTHON" "$root/bench/torch_parity.py" "$@" --data "$DATA" --threads "$THREADS" || failed=1; }
epochs() { # model, title, the option for the peer, then keys
    model=$1 title=$2 option=$3
    shift 3
    for precision in 32-true 16-mixed bf16-mixed; do
        train "$model-$title-$precision" trainer.precision=$precision "$@"
    done
    # shellcheck disable=SC2086
    peer accuracy "$weights" "$work/$model-$title-32-true" "$work/$model-$title-16-mixed" "$work/$model-$title-bf16-mixed" \
        --title "$model, one epoch, $title" --tolerance 0.5 $option
}

cd "$root"
for model in $MODELS; do
    choose "$model"
    weights=$work/$model.safetensors
    init "$weights" "$SEED"
    for what in $WHAT; do
        case $what in
        losses)
            for optimizer in $rules; do
                case $optimizer in sgd) lr=1e-2 ;; adamw) lr=$LR ;; *) lr=1e-3 ;; esac
                rule="optimizer=$optimizer optimizer.lr=$lr"
                [ "$optimizer" != sgd ] || rule="$rule optimizer.momentum=0.9 optimizer.nesterov=false"
                for seed in $SEEDS; do
                    weights=$work/$model-$seed.safetensors
                    init "$weights" "$seed"
                    name=$model-$optimizer-$seed runs=$work/$model-$optimizer-$seed
                    first_steps "$name" 32-true
                    if [ "$optimizer" = adamw ]; then
                        for precision in 16-mixed bf16-mixed; do
                            first_steps "$name-$precision" $precision
                            runs="$runs $work/$name-$precision"
                        done
                    fi
                    # shellcheck disable=SC2086
                    peer losses "$weights" $runs --title "$model, $optimizer, seed $seed" --optimizer "$optimizer" --lr "$lr" \
                        --batch $batch $options --distances "$work/$model-$optimizer.distances"
                done
                peer judge "$work/$model-$optimizer.distances" --title "$model, $optimizer"
            done
            weights=$work/$model.safetensors rule=$adam
            ;;
        accuracy) [ "$rules" = adamw ] || epochs "$model" "dropout off" "" model.dropout=0 ;; # one epoch of a transformer shows little
        dropout) [ "$model" != convnet ] || epochs "$model" "dropout on" --dropout ;;          # the others have none of their own
        *) echo "torch_parity.sh: WHAT=$what: use losses, accuracy or dropout" >&2; exit 2 ;;
        esac
    done
done
exit $failed
