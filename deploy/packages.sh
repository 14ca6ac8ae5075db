#!/usr/bin/env bash
# Installs the distribution packages that a purpose needs (Debian 12; the names hold on Ubuntu 24.04 too).
#
#   deploy/packages.sh build            compile the server, the client and the CPU backend
#   deploy/packages.sh build test       ... and run every test
#   deploy/packages.sh build bundle     ... and make the relocatable bundle
#
# What is installed already costs nothing. Needs root, or sudo.
set -euo pipefail

declare -A packages=(
  [build]="g++ cmake ninja-build pkg-config libgrpc++-dev protobuf-compiler-grpc grpc-proto libprotobuf-dev libabsl-dev
           prometheus-cpp-dev libopencv-core-dev libopencv-imgproc-dev libjpeg-dev libpng-dev libwebp-dev libtiff-dev
           libgif-dev libdnnl-dev libjemalloc-dev libseccomp-dev libssl-dev libtbb-dev zlib1g-dev"
  [test]="libgtest-dev libgmock-dev prometheus curl python3 python3-venv python3-grpcio python3-protobuf git libb64-0d openssl"
  [fuzz]="clang libclang-rt-dev"
  [lint]="clang-format clang-tidy"
  [bundle]="patchelf python3 xz-utils"
)

wanted=()
for purpose in "$@"; do
  [ -n "${packages[$purpose]:-}" ] || { echo "packages.sh: unknown purpose '$purpose'; known: ${!packages[*]}" >&2; exit 2; }
  # shellcheck disable=SC2206
  wanted+=(${packages[$purpose]})
done
[ ${#wanted[@]} -gt 0 ] || { echo "usage: packages.sh PURPOSE...; known: ${!packages[*]}" >&2; exit 2; }

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "packages.sh: not root and no sudo; please install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "Installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q >/dev/null
# A daemon started by its package would hold a port that nobody asked for.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
made_policy=
clean_up() {
  rm -f "$log"
  [ -z "$made_policy" ] || "${as_root[@]}" rm -f $policy
}
trap clean_up EXIT
if [ ! -e $policy ]; then
  made_policy=1
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod +x $policy
fi
if ! "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
  tail -30 "$log" >&2
  exit 1
fi
