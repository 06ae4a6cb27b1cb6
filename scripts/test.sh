#!/usr/bin/env bash
# The same set-up as quickstart.sh, then everything is built and every test runs through ctest. Arguments go to ctest.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
configure
cmake --build build
ctest --test-dir build --output-on-failure --progress -j "$(nproc)" "$@"
