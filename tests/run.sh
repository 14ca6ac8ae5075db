#!/usr/bin/env bash
# Installs what the tests need, builds, runs every test that this machine can run, and ends with one line of counts.
#
#   tests/run.sh [--label L]     only the tests with a CTest label that matches L
#
# GPU tests skip themselves here: they have their own run, tests/gpu/run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
label=()
while [ $# -gt 0 ]; do
  case "$1" in
    --label) label=(-L "${2:?--label needs a name}"); shift 2 ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done

bash deploy/packages.sh build test fuzz
mkdir -p build
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDEEPENCODER_TESTS=ON >build/configure.log 2>&1 ||
  { cat build/configure.log; exit 1; }
ninja -C build

echo "GPU evidence: $(bash tests/gpu/evidence.sh)"
status=0
ctest --test-dir build -E '^fuzz$' --output-on-failure --timeout 900 --test-output-size-passed 4000000 "${label[@]}" \
  --output-junit "$PWD/build/tests.xml" || status=$?
# The fuzzer last and alone: it takes every processor, and some of the other tests wait for what must happen in time.
ctest --test-dir build/tests/fuzz -R '^fuzz$' --output-on-failure --test-output-size-passed 4000000 "${label[@]}" \
  --output-junit "$PWD/build/fuzz.xml" || status=$?
# One line, whatever the number of programs: cases passed, failed, skipped.
python3 tests/count.py build/tests.xml build/fuzz.xml
exit $status
