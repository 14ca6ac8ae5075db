#!/usr/bin/env bash
# Says what tests/bench/results/gpu-tests.json proves about the CUDA sources as they are now.
set -euo pipefail
cd "$(dirname "$0")/../.."
file=tests/bench/results/gpu-tests.json
[ -e $file ] || { echo "none: no $file"; exit 0; }
field() { sed -n "s/^ \"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" $file; }
what="$(field passed) passed, $(field failed) failed on $(field device), $(field date)"
if [ "$(field source_hash)" = "$(bash tests/gpu/source_hash.sh)" ]; then
  echo "$what, for exactly these sources"
else
  echo "$what, for OTHER sources than these: run tests/gpu/run.sh on a GPU again"
fi
