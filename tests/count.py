#!/usr/bin/env python3
"""Prints 'N passed, N failed, N skipped' over CTest's JUnit files, GoogleTest programs counted by their cases."""
import re
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0
for case in (case for path in sys.argv[1:] for case in tree.parse(path).getroot().iter("testcase")):
    output = case.findtext("system-out") or ""
    ok, lost, not_run = (sum(map(int, re.findall(pattern, output, re.M))) for pattern in (
        r"^\[  PASSED  \] (\d+) tests?", r"^\[  FAILED  \] (\d+) tests?, listed", r"^\[  SKIPPED \] (\d+) tests?, listed"))
    if ok + lost + not_run == 0:  # not a GoogleTest program
        ok, lost, not_run = (int(case.get("status") == state) for state in ("run", "fail", "notrun"))
    elif case.get("status") == "fail" and lost == 0:  # it died
        lost = 1
    passed, failed, skipped = passed + ok, failed + lost, skipped + not_run
print(f"{passed} passed, {failed} failed, {skipped} skipped")
