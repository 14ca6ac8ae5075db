#!/usr/bin/env bash
# Builds the tree twice, in folders of different names, and compares what comes out byte for byte.
#
#   deploy/reproducible.sh           the programs (minutes)
#   deploy/reproducible.sh --small   the libraries that need no packages, with debug information (seconds)
#
# The same compiler and the same packages give the same bytes, wherever and whenever the build runs: deploy/sbom.py lists them.
set -euo pipefail
cd "$(dirname "$0")/.."
options=(-DCMAKE_BUILD_TYPE=Release) targets=(deepencoder-server deepencoder) products='build/bin/*'
case "${1:-}" in
  --small)
    options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DDEEPENCODER_HOST=OFF) targets=() products='build/encoder/*/*.a' ;;
  '') ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
if grep -rnE '__(DATE|TIME|TIMESTAMP)__' --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' proto encoder kernels server client; then
  echo "reproducible.sh: these lines put the time of the build into it" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in one another/with/a/longer/name; do
  mkdir -p "$work/$folder"
  git ls-files -z | grep -zv '^tests/data/' | xargs -0 tar cf - | tar xf - -C "$work/$folder"
  cmake -S "$work/$folder" -B "$work/$folder/build" -G Ninja "${options[@]}" -DDEEPENCODER_TESTS=OFF -DDEEPENCODER_CUDA=OFF \
    -DDEEPENCODER_COMMIT=reproduced >"$work/log" 2>&1 && ninja -C "$work/$folder/build" ${targets[@]+"${targets[@]}"} >>"$work/log" 2>&1 ||
    { tail -30 "$work/log" >&2; exit 1; }
  # shellcheck disable=SC2086
  (cd "$work/$folder" && sha256sum $products) >"$work/$(basename "$folder").sums"
done
cat "$work/one.sums"
diff "$work/one.sums" "$work/name.sums" && echo "the same bytes from both folders"
