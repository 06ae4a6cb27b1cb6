#!/usr/bin/env bash
# The same set-up as quickstart.sh and a browser where there is one, then everything is built and every test runs through ctest. Arguments go to ctest.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages "${invar_packages[@]}"
install_browser
configure
cmake --build build
ctest --test-dir build --output-on-failure --progress -j "$(nproc)" "$@"
