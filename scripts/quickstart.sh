#!/usr/bin/env bash
# From a bare machine to a verdict: installs the packages, builds a release, and validates mixed precision on
# Fashion-MNIST, on the GPU where there is one and nvcc to build for it. Further arguments go to `invar validate`.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
configure
cmake --build build --target invar_program
# 300 of an epoch's 469 batches keep the three runs within three minutes on two cores.
exec build/bin/invar validate fashion_mnist trainer.limit_train_batches=300 "$@"
