#!/usr/bin/env bash
# Builds everything with sanitizers and runs the tests: every program that a test starts, servers and clients too, and what it
# reports. Ends with the counts of tests, and fails if one failed or any process reported anything.
#
#   tests/sanitize.sh asan|tsan [CTest's arguments]      asan: AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
#
# DEEPENCODER_SANITIZE_BUILD: the build folder, else build-asan or build-tsan. CMAKE_ARGS: more for CMake.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  asan|tsan) preset=$1; shift ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
build=${DEEPENCODER_SANITIZE_BUILD:-$PWD/build-$preset}
reports=$build/reports
rm -rf "$reports" && mkdir -p "$reports"
# shellcheck disable=SC2086  # several arguments
cmake --preset "$preset" -B "$build" ${CMAKE_ARGS:-} >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
ninja -C "$build"

# Into files: tests end many servers by SIGKILL, so that no exit status tells, and remove what those wrote. (UBSan writes to
# standard error in any case, but ends the process, which no test bears.) A test's process dies of SIGBUS on purpose. Without
# detect_stack_use_after_return, whose stacks are not aligned for AVX-512 (https://github.com/llvm/llvm-project/pull/152819).
common=log_path=$reports/report:handle_sigbus=0
export ASAN_OPTIONS=$common UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.suppressions:print_suppressions=0
# No word of threads that ended and were not joined: a second signal ends a server at once, in whatever state those are, and a
# std::thread that nobody joins ends its program anyway.
export TSAN_OPTIONS=$common:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$PWD/tests/tsan.suppressions
# One thread of OpenMP, in whose library ThreadSanitizer sees no synchronisation.
[ "$preset" = asan ] || export OMP_THREAD_LIMIT=1
status=0
ctest --test-dir "$build" --output-on-failure --test-output-size-passed 4000000 --output-junit "$build/tests.xml" "$@" || status=$?
python3 tests/count.py "$build/tests.xml"
found=$(find "$reports" -type f | wc -l)
echo "$found processes reported something"
if [ "$found" -gt 0 ]; then
  find "$reports" -type f -print0 | head -z -n 10 | xargs -0 head -n 60
  status=1
fi
exit $status
