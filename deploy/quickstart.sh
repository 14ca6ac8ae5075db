#!/usr/bin/env bash
# From a fresh checkout to an encoded page: installs packages, builds, makes or takes a checkpoint, starts the server on
# free loopback ports, encodes a page, shows what moved in the metrics, stops. Safe to run again.
#
#   deploy/quickstart.sh [--model DIR] [--image FILE] [--mode tiny|small|base|large|gundam] [--keep]
#
#   --model DIR   a DeepSeek-OCR checkpoint folder; without it a synthetic one is made in build/ (803 MB)
#   --image FILE  the page to encode; default tests/data/images/page_rgb.jpg
#   --mode M      default gundam
#   --keep        leave the server running and say how to reach it
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."

# Paths that were given are the caller's folder's.
given() { case "$1" in /*) echo "$1" ;; *) echo "$from/$1" ;; esac }

model='' image=tests/data/images/page_rgb.jpg mode=gundam keep=''
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$(given "${2:?--model needs a folder}"); shift 2 ;;
    --image) image=$(given "${2:?--image needs a file}"); shift 2 ;;
    --mode) mode="${2:?--mode needs a name}"; shift 2 ;;
    --keep) keep=1; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
[ -r "$image" ] || { echo "quickstart.sh: cannot read the image $image" >&2; exit 2; }
[ -z "$model" ] || [ -d "$model" ] || { echo "quickstart.sh: no folder $model" >&2; exit 2; }

step() { printf '\n== %s\n' "$*"; }

step "Packages"
bash deploy/packages.sh build

step "Build"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDEEPENCODER_TESTS=OFF >build.log 2>&1 ||
  { cat build.log; exit 1; }
mv build.log build/configure.log
ninja -C build deepencoder-server deepencoder $(grep -q 'CUDA backend: ON' build/configure.log && echo deepencoder_cuda)

if [ -z "$model" ]; then
  step "Checkpoint"
  model=build/synthetic-checkpoint
  echo "No --model was given: making SYNTHETIC weights in $model. The embeddings that follow mean NOTHING."
  [ -e $model/config.json ] || build/bin/deepencoder checkpoint synthesize $model
fi

step "Server"
run=$(mktemp -d)
build/bin/deepencoder-server --model="$model" --listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 \
  --ready-file="$run/ready" >"$run/log" 2>&1 &
server=$!
stop() {
  if kill -0 $server 2>/dev/null; then
    kill -TERM $server
    wait $server || true
  fi
}
trap stop EXIT
for _ in $(seq 600); do
  [ ! -s "$run/ready" ] || break
  kill -0 $server 2>/dev/null || { echo "The server ended:"; cat "$run/log"; exit 1; }
  sleep 0.2
done
[ -s "$run/ready" ] || { echo "The server is not ready after two minutes:"; tail -20 "$run/log"; exit 1; }
cat "$run/log"
address=$(sed -n 's/^grpc=//p' "$run/ready" | head -1)
metrics=$(sed -n 's/^metrics=//p' "$run/ready" | head -1)

step "Encode $image in mode $mode"
build/bin/deepencoder encode "$image" --server "$address" --mode "$mode" --out build/quickstart.safetensors

step "Metrics that moved (http://$metrics/metrics)"
# Plain bash, so that nothing has to be installed to look.
exec 3<>"/dev/tcp/${metrics%:*}/${metrics##*:}"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
grep -E '^deepencoder_(requests|images|tokens|graph_launches)_total|^deepencoder_(request|stage)_duration_seconds_(count|sum)' <&3 |
  grep -vE ' 0(\.0+)?$' || true
exec 3>&-

if [ -n "$keep" ]; then
  trap - EXIT
  step "Serving"
  echo "gRPC on $address, metrics on http://$metrics/metrics, log in $run/log"
  echo "Clients find it with: export DEEPENCODER_SERVER=$address"
  echo "Stop it with: kill $server"
else
  step "Done"
  stop
  trap - EXIT
  tail -2 "$run/log"
  rm -rf "$run"
fi
