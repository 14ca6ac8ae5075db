"""Runs the tests here and prints a line of counts."""

import sys
import unittest
from pathlib import Path


def main() -> int:
    """Arguments are names of tests, as unittest takes them; none: all."""
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    loader = unittest.defaultTestLoader
    names = sys.argv[1:]
    tests = loader.loadTestsFromNames(names) if names else loader.discover(str(here))
    result = unittest.TextTestRunner().run(tests)
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"python_client: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
