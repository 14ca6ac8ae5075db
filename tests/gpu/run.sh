#!/usr/bin/env bash
# Builds the CUDA backend on this machine and runs every test that needs a GPU.
# Needs a GPU, nvcc, CMake, ninja, GoogleTest, and python3 with numpy and Pillow.
#
#   tests/gpu/run.sh [--sanitize] [RESULT.json]
#
# Writes tests/bench/results/gpu-tests.json (or RESULT.json): what passed, on which GPU, for which sources.
# The whole server is compared by tests/gpu/serving_test.py, which needs a bundle (deploy/bundle.sh).
# --sanitize also runs at least one test of every kernel under compute-sanitizer's memcheck and racecheck (minutes);
# DEEPENCODER_SANITIZE_FILTER, a GoogleTest filter, chooses others; DEEPENCODER_SANITIZE_SECONDS bounds each program.
set -euo pipefail
cd "$(dirname "$0")/../.."

sanitize=
if [ "${1:-}" = --sanitize ]; then sanitize=1; shift; fi
result="${1:-tests/bench/results/gpu-tests.json}"
build="${DEEPENCODER_GPU_BUILD:-build-gpu}"
log="$build/gpu-tests"

nvidia-smi --query-gpu=name --format=csv,noheader >/dev/null || { echo "no GPU here" >&2; exit 1; }
cmake -S . -B "$build" -G Ninja -DDEEPENCODER_HOST=OFF -DDEEPENCODER_CUDA=ON \
  -DDEEPENCODER_CUDA_ARCHITECTURES="${DEEPENCODER_CUDA_ARCHITECTURES:-90a-real}" >/dev/null
ninja -C "$build" >"$log.build.txt" 2>&1 || { tail -40 "$log.build.txt"; exit 1; }

status=0
# Skipped tests prove nothing here: where a GPU is, none may skip for want of one.
export DEEPENCODER_CUDA_LIBRARY="${DEEPENCODER_CUDA_LIBRARY:-$PWD/$build/lib/libdeepencoder_cuda.so}"
PYTHONUNBUFFERED=1 python3 tests/gpu/encoder_test.py >"$log.encoder.txt" 2>&1 &
encoder=$!
ctest --test-dir "$build" --output-on-failure --output-junit "$PWD/$log.ctest.xml" || status=1
wait "$encoder" || status=1
cat "$log.encoder.txt"

# Every kernel in every type, at sizes that end within minutes though each access is looked at. All at once: each is
# bound by one thread of the host.
filter="ArenaPlan.*:RowsTest.*:Small/*:*EveryTilingGivesTheSameBits*:*MatchesReference/*OddTiles"
filter+=":*MatchesReference/*SmallestSizes:GlobalAttentionTest.HopperGrids:GlobalAttentionTest.RandomShapes"
filter+=":GlobalAttentionTest.EveryRowRepeated"
sanitized="{}"
if [ -n "$sanitize" ]; then
  declare -A running
  for tool in memcheck racecheck; do
    for test in "$build"/tests/*_test; do
      [ "$(basename "$test")" != arena_test ] || continue  # runs on the host alone
      name="$tool.$(basename "$test")"
      timeout "${DEEPENCODER_SANITIZE_SECONDS:-900}" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$test" \
        --gtest_filter="${DEEPENCODER_SANITIZE_FILTER:-$filter}" >"$log.$name.txt" 2>&1 &
      running["$name"]=$!
    done
  done
  outcomes=
  for name in "${!running[@]}"; do
    outcome=clean
    wait "${running[$name]}" || { outcome="not clean, status $?"; status=1; tail -20 "$log.$name.txt"; }
    outcomes+="${outcomes:+, }\"$name\": \"$outcome\""
    echo "$name: $outcome, $(tail -1 "$log.$name.txt")"
  done
  sanitized="{$outcomes}"
fi

python3 - "$log" "$result" "$sanitized" "$(bash tests/gpu/source_hash.sh)" <<'PY'
import datetime, json, os, re, subprocess, sys
import xml.etree.ElementTree as tree
log, result, sanitized, source = sys.argv[1:]
run = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.strip()
suite = tree.parse(log + ".ctest.xml").getroot()
programs = {case.get("name"): case.get("status") for case in suite.iter("testcase")}
text = open(log + ".encoder.txt").read()
ran = int(re.search(r"^Ran (\d+) tests?", text, re.M).group(1))
last = text.rstrip().splitlines()[-1]
lost = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", last))
skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", last))
good = sum(state == "run" for state in programs.values())
record = {
    "name": "GPU tests", "device": run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[0],
    "driver": run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0],
    "source_hash": source, "commit": os.environ.get("DEEPENCODER_COMMIT") or run("git", "rev-parse", "--short", "HEAD"),
    "command": "bash tests/gpu/run.sh" + (" --sanitize" if sanitized != "{}" else ""),
    "date": datetime.date.today().isoformat(),
    "kernel_programs": programs, "encoder_tests": {"ran": ran, "failed": lost, "skipped": skipped},
    "errors": re.findall(r"^  (\S+ +(?:bf16|fp16) reply.*)$", text, re.M),
    "passed": good + ran - lost - skipped, "failed": len(programs) - good + lost,
}
# What the sanitizers said last, of which sources.
if sanitized != "{}":
    record["sanitizers"] = {"source_hash": source, "commit": record["commit"], "programs": json.loads(sanitized)}
elif os.path.exists(result):
    record["sanitizers"] = json.load(open(result)).get("sanitizers")
json.dump(record, open(result, "w"), indent=1)
print(f"{record['passed']} passed, {record['failed']} failed, {skipped} skipped")
PY
exit $status
