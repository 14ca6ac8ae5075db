#!/usr/bin/env bash
# Builds the fuzz targets with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and runs each from its corpora.
#
#   tests/fuzz/run.sh [--seconds N] [--jobs N] [--keep DIR] [NAME...]
#
#   --seconds N   of each run (default 60)
#   --jobs N      runs at a time (default: the number of cores)
#   --keep DIR    where grown corpora and findings stay (default: thrown away)
#   NAME          runs to do (default: all): jpeg png webp tiff bmp_gif metadata config safetensors checkpoint request
#                 infer call_metadata token_file object_name command_line
#   DEEPENCODER_FUZZ_SEED=N  the same mutations each time, as far as time goes (default: others each time)
#
# Ends with a line for each run, and with status 1 if one found something: the input lies in tests/fuzz/findings, and
# `build-fuzz/tests/TARGET FILE` shows it again. Build directory: build-fuzz, or DEEPENCODER_FUZZ_BUILD.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=60 jobs=$(nproc) keep='' names=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="${2:?--seconds needs a number}"; shift 2 ;;
    --jobs) jobs="${2:?--jobs needs a number}"; shift 2 ;;
    --keep) keep="${2:?--keep needs a folder}"; shift 2 ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown argument '$1'" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done
build="${DEEPENCODER_FUZZ_BUILD:-build-fuzz}" data=tests/data

# A run: its target, the largest input, and its corpora. The image formats share a target and no inputs, so that a
# mutation seldom leaves its format.
declare -A target=([jpeg]=image [png]=image [webp]=image [tiff]=image [bmp_gif]=image)
declare -A patterns=([jpeg]='*.jpg' [png]='*.png' [webp]='*.webp' [tiff]='*.tif*' [bmp_gif]='*.bmp *.gif')
all=(jpeg png webp tiff bmp_gif metadata config safetensors checkpoint request infer call_metadata token_file object_name command_line)
[ ${#names[@]} -gt 0 ] || names=("${all[@]}")
for name in "${names[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || { echo "run.sh: unknown run '$name'; known: ${all[*]}" >&2; exit 2; }
done

compiler=$(command -v clang++ || ls /usr/bin/clang++-[0-9]* 2>/dev/null | sort -V | tail -1 || true)
[ -n "$compiler" ] || { echo "run.sh: no clang (deploy/packages.sh fuzz)" >&2; exit 77; }
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" -DDEEPENCODER_FUZZ=ON \
  -DDEEPENCODER_SANITIZE=address,undefined -DDEEPENCODER_TESTS=OFF -DDEEPENCODER_CUDA=OFF >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log"; exit 1; }
ninja -C "$build" deepencoder_fuzz_targets >"$build/build.log" 2>&1 || { tail -50 "$build/build.log"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${keep:=$work/kept}"
mkdir -p "$keep" tests/fuzz/findings
export build work keep seconds data

run() {
  local name=$1 target=$2 patterns=$3 seeds="$work/seeds/$1" status=0
  mkdir -p "$seeds" "$keep/$name" "$work/log"
  if [ -n "$patterns" ]; then
    local pattern
    set -f
    for pattern in $patterns; do
      find "$data/formats" "$data/images" "$data/fuzz/image" -name "$pattern" -size -64k -exec cp --backup=numbered -t "$seeds" {} +
    done
  else
    cp "$data/fuzz/$name"/* "$seeds"
  fi
  local arguments=(-max_total_time="$seconds" -max_len=32768 -timeout=90 -rss_limit_mb=2560 -print_final_stats=1
                   -artifact_prefix="tests/fuzz/findings/$name-")
  [ -z "${DEEPENCODER_FUZZ_SEED:-}" ] || arguments+=(-seed="$DEEPENCODER_FUZZ_SEED")
  [ ! -e "tests/fuzz/dictionaries/$name.dict" ] || arguments+=(-dict="tests/fuzz/dictionaries/$name.dict")
  "$build/tests/${target}_fuzz" "${arguments[@]}" "$keep/$name" "$seeds" >"$work/log/$name" 2>&1 || status=$?
  local runs cover
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log/$name")
  cover=$(grep -o 'cov: [0-9]*' "$work/log/$name" | tail -1)
  if [ $status = 0 ]; then
    echo "fuzz $name: ${runs} inputs, ${cover}, nothing found"
  else
    tail -60 "$work/log/$name" >&2
    echo "fuzz $name: FOUND after ${runs:-?} inputs: $(grep -o 'tests/fuzz/findings/.*' "$work/log/$name" | tail -1)"
    return 1
  fi
}
export -f run
for name in "${names[@]}"; do printf '%s\0%s\0%s\0' "$name" "${target[$name]:-$name}" "${patterns[$name]:-}"; done |
  xargs -0 -n 3 -P "$jobs" bash -c 'run "$@"' run || exit 1
rmdir tests/fuzz/findings 2>/dev/null || true
