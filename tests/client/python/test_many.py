"""Many images: bounded, in order, failing one by one."""

import itertools
import threading
import unittest

import grpc
import numpy as np
from deepencoder_client import Client, InputError, InvalidRequestError, OverloadedError, RetryPolicy

from fake_server import FakeServer, answer, fail, script, set_when_ended

Code = grpc.StatusCode
QUICK = RetryPolicy(first_delay=0.001, max_delay=0.002)


def picture(width: int):
    """An image that its width names."""
    return np.zeros((1, width, 3), np.uint8)


class Gauge:
    """Counts calls that are under way, and holds them until `wanted` have been at once."""

    def __init__(self, wanted: int) -> None:
        self.highest = self._now = 0
        self._wanted = wanted
        self._changed = threading.Condition()

    def __call__(self, request, context):
        with self._changed:
            self._now += 1
            self.highest = max(self.highest, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.highest >= self._wanted, timeout=30)
            self._now -= 1
        return answer(request)


class LastFirst:
    """Holds image 1 until image `last` has been answered."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._passed = threading.Event()

    def __call__(self, request, context):
        if request.raw.width == 1 and not self._passed.wait(30):
            context.abort(Code.INTERNAL, "the other image did not come")
        if request.raw.width == self._last:
            self._passed.set()
        return answer(request)


class ManyTest(unittest.TestCase):
    def many(self, behaviour, images, retry=QUICK, **arguments):
        with FakeServer(behaviour) as server, Client(server.address, retry=retry) as client:
            self.server = server
            return list(client.encode_many(images, **arguments))

    def test_concurrency_is_reached_and_not_passed(self):
        gauge = Gauge(wanted=4)
        results = self.many(gauge, [picture(1)] * 20, concurrency=4)
        self.assertEqual(len(results), 20)
        self.assertEqual(gauge.highest, 4)

    def test_results_keep_the_order(self):
        results = self.many(LastFirst(4), [picture(w) for w in range(1, 9)], concurrency=4)
        self.assertEqual([r.index for r in results], list(range(8)))
        self.assertEqual([r.unwrap().stored[0, 0] for r in results], list(range(1, 9)))

    def test_errors_stay_with_their_image(self):
        def behaviour(request, context):
            if request.raw.width == 3:
                fail(context, Code.INVALID_ARGUMENT, "the file ends early")
            return answer(request)

        sources = [picture(2), picture(3), "no-such-file.png", b"", picture(5)]
        results = self.many(behaviour, sources)
        self.assertEqual([r.ok for r in results], [True, False, False, False, True])
        kinds = [type(r.error) for r in results[1:4]]
        self.assertEqual(kinds, [InvalidRequestError, FileNotFoundError, InputError])
        self.assertEqual(results[2].image, "no-such-file.png")
        with self.assertRaisesRegex(InvalidRequestError, "ends early"):
            results[1].unwrap()

    def test_a_full_server_is_asked_again(self):
        steps = [(Code.RESOURCE_EXHAUSTED, "full", 0.01)] * 5 + [(Code.UNAVAILABLE, "away")]
        # All of them may meet the same image.
        patient = RetryPolicy(max_attempts=7, first_delay=0.001, max_delay=0.002)
        results = self.many(
            script(*steps), [picture(w) for w in range(1, 11)], concurrency=3, retry=patient
        )
        self.assertEqual([r.unwrap().stored[0, 0] for r in results], list(range(1, 11)))
        self.assertEqual(self.server.calls, 16)

    def test_a_server_that_stays_full(self):
        def behaviour(request, context):
            fail(context, Code.RESOURCE_EXHAUSTED, "full", 0.001)

        results = self.many(behaviour, [picture(1)] * 3)
        self.assertEqual([type(r.error) for r in results], [OverloadedError] * 3)
        self.assertEqual({r.error.attempts for r in results}, {5})

    def test_endless_images_and_leaving_early(self):
        taken = 0
        arrived, cancelled = threading.Event(), threading.Event()

        def endless():
            nonlocal taken
            for taken in itertools.count(1):
                yield picture(taken)

        def behaviour(request, context):
            if request.raw.width > 10:
                set_when_ended(context, cancelled)
                arrived.set()
                cancelled.wait(30)
            return answer(request)

        with FakeServer(behaviour) as server, Client(server.address) as client:
            results = client.encode_many(endless(), concurrency=4)
            self.assertEqual([next(results).index for _ in range(10)], list(range(10)))
            self.assertTrue(arrived.wait(30))  # a call that is cancelled earlier never gets to the server's function
            results.close()
            self.assertTrue(cancelled.wait(30))  # the server knows
        self.assertLessEqual(taken, 10 + 2 * 4)

    def test_an_iterable_that_raises_ends_the_iteration(self):
        def broken():
            yield picture(1)
            raise RuntimeError("no more paper")

        with FakeServer() as server, Client(server.address) as client:
            with self.assertRaisesRegex(RuntimeError, "no more paper"):
                list(client.encode_many(broken()))

    def test_no_images(self):
        self.assertEqual(self.many(None, []), [])

    def test_progress(self):
        self.assertEqual(len(self.many(None, [picture(1)] * 3, progress=True)), 3)

    def test_wrong_arguments_are_found_at_once(self):
        with Client("127.0.0.1:1") as client:
            with self.assertRaises(ValueError):
                client.encode_many([], concurrency=0)
            with self.assertRaises(ValueError):
                client.encode_many([], mode="huge")

    def test_one_client_in_many_threads(self):
        with FakeServer() as server, Client(server.address) as client:
            wrong = []

            def work(start):
                images = [picture(w) for w in range(start, start + 20)]
                for result in client.encode_many(images):
                    if result.unwrap().stored[0, 0] != start + result.index:
                        wrong.append(result)

            threads = [threading.Thread(target=work, args=(100 * n + 1,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((wrong, server.calls), ([], 80))
