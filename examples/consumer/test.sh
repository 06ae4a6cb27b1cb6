#!/usr/bin/env bash
# The consumer, and the installed program. usage: test.sh PREFIX BUILD WORK
set -euo pipefail
"$2"/consumer
"$1"/bin/invar train synthetic --print-config >/dev/null
