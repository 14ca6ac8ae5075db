#!/usr/bin/env bash
# clang-format over the whole tree and, with --tidy, clang-tidy over what build/ compiles (minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(find encoder kernels server client tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort)
clang-format --dry-run --Werror "${sources[@]}"
echo "clang-format: ${#sources[@]} files"
if [ "${1:-}" = --tidy ]; then
  [ -e build/compile_commands.json ] || { echo "lint.sh --tidy needs a configured build/" >&2; exit 2; }
  find encoder server client -name '*.cc' -not -path '*/cuda/*' | LC_ALL=C sort |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build --quiet
fi
