#!/usr/bin/env bash
# Prints a hash of the CUDA sources: evidence from a GPU names it, so that anyone sees whether it is older than the code.
set -euo pipefail
cd "$(dirname "$0")/../.."
find kernels encoder/cuda encoder/backend/cuda_abi.h -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.h' \) -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
