#!/usr/bin/env bash
# Brings a checkpoint's files into a folder and checks them: the init step of a container.
#
#   fetch-model SUMS BASE_URL DIR
#
#   SUMS      file of "SHA256  NAME" lines, as sha256sum writes them: what to have, and the only thing that is trusted
#   BASE_URL  where each NAME is found: https://..., http://... or file:///...
#   DIR       folder to fill
#
# A file that is there and right is not fetched again; an interrupted one goes on where it stopped. A file takes its
# name only once its sum is right, so a server never reads half of one. Exit status: 0 all there, 1 not, 2 wrong usage.
set -euo pipefail
[ $# = 3 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
sums=$1 base=${2%/} dir=$3
[ -r "$sums" ] || { echo "fetch-model: cannot read $sums" >&2; exit 2; }
mkdir -p "$dir"

is_right() { echo "$1  $2" | sha256sum --check --status; }

count=0
# The last line may end without a newline.
while read -r sum name || [ -n "$sum" ]; do
  [ -n "$sum" ] || continue
  name=${name#\*}
  if ! [[ $sum =~ ^[0-9a-f]{64}$ ]] || [ -z "$name" ] || [[ $name == */* ]]; then
    echo "fetch-model: $sums: '$sum  $name' is not a SHA-256 sum and a plain file name" >&2
    exit 2
  fi
  count=$((count + 1))
  if [ -f "$dir/$name" ] && is_right "$sum" "$dir/$name"; then
    echo "fetch-model: $name is there"
    continue
  fi
  part="$dir/.$name.part"
  echo "fetch-model: fetching $name"
  # All of it may be there, without its name yet.
  [ -f "$part" ] && is_right "$sum" "$part" || curl --fail --silent --show-error --location --retry 5 --retry-delay 2 --connect-timeout 20 \
    --speed-limit 1024 --speed-time 60 --continue-at - --output "$part" "$base/$name" || {
      status=$?
      # 22: an error of HTTP, 33: no ranges. What is there may be what the server cannot go on from.
      case $status in 22|33) rm -f "$part" ;; esac
      echo "fetch-model: cannot fetch $base/$name" >&2
      exit 1
    }
  if ! is_right "$sum" "$part"; then
    echo "fetch-model: $name has the sum $(sha256sum "$part" | cut -d' ' -f1), not $sum: removed" >&2
    rm -f "$part"
    exit 1
  fi
  mv "$part" "$dir/$name"
done <"$sums"
[ $count -gt 0 ] || { echo "fetch-model: $sums names no file" >&2; exit 2; }
echo "fetch-model: $count files are in $dir and right"
