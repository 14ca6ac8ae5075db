"""Who waits for what, with loads that the test lets go."""

import threading
import unittest
from concurrent.futures import Future, wait

import numpy as np

from deepencoder_vllm.transfers import Transfers, results

ROWS = np.zeros((4, 8), np.uint16)  # 64 bytes


class Loads:
    """Loads that end when told, and are counted."""

    def __init__(self):
        self.go = threading.Event()
        self.started = 0

    def __call__(self):
        self.started += 1
        self.go.wait(10)
        return ROWS


class TransfersTest(unittest.TestCase):
    def transfers(self, concurrency=2, idle_bytes=1 << 20):
        transfers = Transfers(concurrency, idle_bytes)
        self.addCleanup(transfers.close)
        return transfers

    def finish(self, transfers, *items):
        wait([transfers._items[item].load for item in items], timeout=10)

    def test_one_load_serves_every_request(self):
        transfers, loads = self.transfers(), Loads()
        self.addCleanup(loads.go.set)
        self.assertFalse(transfers.start("a", "r1", loads))
        self.assertFalse(transfers.start("a", "r2", loads))
        self.assertIsNone(transfers.rows("a"))
        self.assertIsNone(transfers.error("a"))
        loads.go.set()
        self.finish(transfers, "a")
        self.assertTrue(transfers.start("a", "r2", loads))
        self.assertIs(transfers.rows("a"), ROWS)
        self.assertEqual(loads.started, 1)

    def test_a_failure_is_told_and_tried_anew_by_the_next_request(self):
        transfers = self.transfers()
        transfers.start("a", "r1", lambda: 1 // 0)
        self.finish(transfers, "a")
        self.assertTrue(transfers.start("a", "r1", lambda: ROWS))  # ended: not tried by the same one
        self.assertIsInstance(transfers.error("a"), ZeroDivisionError)
        self.assertIsNone(transfers.rows("a"))
        transfers.release("a", "r1")
        transfers.start("a", "r2", lambda: ROWS)
        self.finish(transfers, "a")
        self.assertIs(transfers.rows("a"), ROWS)

    def test_what_failed_unseen_is_tried_anew(self):
        transfers, release = self.transfers(), threading.Event()

        def fails():
            release.wait(10)
            raise OSError("gone")

        transfers.start("a", "r1", fails)
        while not transfers._items["a"].load.running():
            pass
        transfers.release("a", "r1")  # cannot be cancelled any more
        release.set()
        self.finish(transfers, "a")
        transfers.start("a", "r2", lambda: ROWS)
        self.finish(transfers, "a")
        self.assertIs(transfers.rows("a"), ROWS)

    def test_a_load_not_begun_is_dropped_with_its_last_request(self):
        transfers, first, second = self.transfers(concurrency=1), Loads(), Loads()
        self.addCleanup(first.go.set)
        transfers.start("a", "r1", first)
        transfers.start("b", "r1", second)
        transfers.start("b", "r2", second)
        transfers.release("b", "r1")
        self.assertIn("b", transfers._items)
        transfers.release("b", "r2")
        self.assertNotIn("b", transfers._items)
        first.go.set()
        self.finish(transfers, "a")
        self.assertEqual(second.started, 0)

    def test_needed_rows_stay_and_idle_ones_go_by_age(self):
        transfers = self.transfers(idle_bytes=2 * ROWS.nbytes)
        for item in "abcd":
            transfers.start(item, "r", lambda: ROWS)
            self.finish(transfers, item)
        self.assertTrue(all(transfers.rows(item) is not None for item in "abcd"))
        for item in "bcda":  # the order of release does not matter, that of use does
            transfers.release(item, "r")
        self.assertEqual([item for item in "abcd" if transfers.rows(item) is not None], ["c", "d"])

    def test_releasing_the_unknown_is_nothing(self):
        transfers = self.transfers()
        transfers.release("a", "r1")
        transfers.start("a", "r1", lambda: ROWS)
        transfers.release("a", "r2")
        self.finish(transfers, "a")
        self.assertIs(transfers.rows("a"), ROWS)


class ResultsTest(unittest.TestCase):
    def test_a_part_that_fails_cancels_those_not_begun(self):
        done, failed, waiting = Future(), Future(), Future()
        done.set_result(np.zeros((1, 1)))
        failed.set_exception(RuntimeError("no server"))
        with self.assertRaisesRegex(RuntimeError, "no server"):
            results([done, failed, waiting])
        self.assertTrue(waiting.cancelled())
        self.assertEqual(len(results([done, done])), 2)


if __name__ == "__main__":
    unittest.main()
