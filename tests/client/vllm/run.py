"""Runs the tests of the given folders and prints a line of counts."""

import sys
import unittest


def main(folders: list[str]) -> int:
    """Returns the exit status."""
    tests = unittest.TestSuite()
    for folder in folders:  # their modules' names differ: one folder's is not taken for another's
        tests.addTests(unittest.TestLoader().discover(folder, top_level_dir=folder))
    result = unittest.TextTestRunner().run(tests)
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"vllm_client: {passed} passed, {failed} failed, {len(result.skipped)} skipped", flush=True)
    for test, reason in result.skipped:
        print(f"  skipped {test.id()}: {reason}")
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
