"""Memory that was lost: who replaces it, and how long that may take."""

import asyncio
import threading
import time
import unittest
from unittest import mock

import grpc
from deepencoder_client import AsyncClient, Client, RetryPolicy, UnsupportedError, protocol
from deepencoder_client.retry import Attempts
from deepencoder_client.shared_memory import Memfd, Share
from deepencoder_client.sharing import RENEWAL_PAUSE, RENEWAL_SECONDS, Sharing, renewal_attempts
from fake_server import FakeServer, answer, fail
from test_many import picture

Code = grpc.StatusCode
SIZE = 1 << 20
LONG = 30  # seconds; only a broken build waits so long
WORK = 0.5  # seconds that a server takes


def registered(request, context):
    """A registration's answer."""
    return protocol.RegisterRegionResponse(handle="a region")


class Forgetful:
    """An encode's behaviour: calls with memory are refused as long as `forgets`."""

    def __init__(self) -> None:
        self.forgets = True

    def __call__(self, request, context):
        if self.forgets and request.HasField("reply_range"):
            fail(context, Code.NOT_FOUND, "no such region")
        return answer(request)


class Hanging:
    """A registration that does not answer. `left`: the seconds that its client gives it."""

    def __init__(self, test: unittest.TestCase) -> None:
        self.left = 0.0
        self.arrived = threading.Event()
        self._over = threading.Event()
        test.addCleanup(self._over.set)

    def __call__(self, request, context):
        self.left = context.time_remaining()
        self.arrived.set()
        self._over.wait(LONG)
        return registered(request, context)


def share() -> Share:
    return Share(Memfd(SIZE), "a region", None)


class SharingTest(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.sharing = Sharing(lambda: self.now)
        self.first = share()
        self.sharing.start(self.first)

    def test_lost_memory_is_replaced_by_one_caller(self):
        self.assertEqual(self.sharing.due(), 0)
        self.sharing.lost(share(), replace=True)  # not the one in use
        self.assertIs(self.sharing.share, self.first)
        self.sharing.lost(self.first, replace=True)
        self.assertIsNone(self.sharing.share)
        self.assertEqual([self.sharing.due(), self.sharing.due()], [SIZE, 0])
        second = share()
        with self.sharing.renewing():
            self.sharing.start(second)
        self.assertEqual((self.sharing.share, self.sharing.due()), (second, 0))

    def test_memory_of_no_use_is_not_replaced(self):
        self.sharing.lost(self.first, replace=False)
        self.assertEqual((self.sharing.share, self.sharing.due()), (None, 0))

    def test_a_failed_renewal_is_tried_again_later(self):
        self.sharing.lost(self.first, replace=True)
        for error in (OSError("no room"), TimeoutError("late")):
            self.assertEqual(self.sharing.due(), SIZE)
            with self.sharing.renewing():
                raise error
            self.now += RENEWAL_PAUSE / 2
            self.assertEqual(self.sharing.due(), 0)
            self.now += RENEWAL_PAUSE / 2

    def test_a_cancelled_renewal_is_tried_again_at_once(self):
        self.sharing.lost(self.first, replace=True)
        self.assertEqual(self.sharing.due(), SIZE)
        with self.assertRaises(asyncio.CancelledError), self.sharing.renewing():
            raise asyncio.CancelledError
        self.assertEqual(self.sharing.due(), SIZE)

    def test_a_server_that_shares_no_more(self):
        self.sharing.lost(self.first, replace=True)
        self.assertEqual(self.sharing.due(), SIZE)
        with self.sharing.renewing():
            raise UnsupportedError(Code.UNIMPLEMENTED, "")
        self.now += RENEWAL_PAUSE
        self.assertEqual(self.sharing.due(), 0)

    def test_closed(self):
        self.assertIs(self.sharing.stop(), self.first)
        self.sharing.lost(self.first, replace=True)
        self.assertEqual((self.sharing.share, self.sharing.due()), (None, 0))

    def test_a_renewal_leaves_its_call_time(self):
        for timeout, most in ((1.0, 0.5), (60.0, RENEWAL_SECONDS), (None, RENEWAL_SECONDS)):
            attempts = renewal_attempts(Attempts(RetryPolicy(), timeout))
            self.assertLessEqual(attempts.remaining(), most)


class ClientTest(unittest.TestCase):
    def setUp(self):
        # A renewal that should succeed does so on a machine that stalls, too.
        patch = mock.patch("deepencoder_client.sharing.RENEWAL_SECONDS", LONG)
        patch.start()
        self.addCleanup(patch.stop)
        self.behaviour = Forgetful()
        self.server = FakeServer(self.behaviour)
        self.server.registration = registered
        self.server.__enter__()
        self.addCleanup(self.server.__exit__)

    def client(self) -> Client:
        client = Client(self.server.address)
        self.addCleanup(client.close)
        client.share_memory(SIZE)
        return client

    def test_the_refused_call_goes_on_without_and_the_next_one_renews(self):
        client = self.client()
        first = client._sharing.share
        client.encode(picture(3), mode="tiny")
        self.assertIsNone(client._sharing.share)
        self.behaviour.forgets = False
        client.encode(picture(3), mode="tiny")
        self.assertIsNot(client._sharing.share, first)
        self.assertEqual(
            [request.HasField("reply_range") for request in self.server.requests],
            [True, False, True],
        )

    def test_a_renewal_takes_a_part_of_its_calls_time(self):
        client = self.client()
        client.encode(picture(3), mode="tiny")
        hanging = self.server.registration = Hanging(self)
        client.encode(picture(3), mode="tiny", timeout=4)
        self.assertLess(hanging.left, 2 + 1)  # gRPC rounds it up
        self.server.registration = registered
        client._sharing._not_before = 0.0  # the pause is over
        client.encode(picture(3), mode="tiny")
        self.assertTrue(self.server.requests[-2].HasField("reply_range"))

    def test_a_refused_call_has_one_timeout(self):
        left = []

        def behaviour(request, context):
            left.append(context.time_remaining())
            if request.HasField("reply_range"):
                time.sleep(WORK)
                fail(context, Code.NOT_FOUND, "no such region")
            return answer(request)

        self.server.behaviour = behaviour
        client = self.client()
        client.encode(picture(3), mode="tiny", timeout=8)
        self.assertEqual(len(left), 2)
        self.assertLess(left[1], left[0] - WORK / 2)  # gRPC rounds them

    def test_sharing_has_one_timeout(self):
        left = []

        def registration(request, context):
            left.append(context.time_remaining())
            if request.HasField("memfd"):
                time.sleep(WORK)
                fail(context, Code.NOT_FOUND, "no such process")
            return registered(request, context)

        self.server.registration = registration
        with Client(self.server.address) as client:
            client.share_memory(SIZE, timeout=8)
        self.assertEqual(len(left), 2)
        self.assertLess(left[1], left[0] - WORK / 2)  # gRPC rounds them

    def test_a_retry_does_not_share_memory_with_an_attempt_that_may_still_write(self):
        def behaviour(request, context):
            if request.HasField("reply_range"):
                context.abort(Code.UNAVAILABLE, "the connection broke")  # no answer of the server's
            return answer(request)

        self.server.behaviour = behaviour
        client = self.client()
        client.encode(picture(3), mode="tiny")
        (result,) = client.encode_many([picture(3)], mode="tiny")
        self.assertTrue(result.ok)
        self.assertEqual(
            [request.HasField("reply_range") for request in self.server.requests],
            [True, False] * 2,
        )

    def test_a_call_that_cannot_start_gives_its_memory_back(self):
        tokens = iter(["for info", "for the registration"])
        client = Client(self.server.address, token=lambda: next(tokens))
        self.addCleanup(client._channel.close)
        client.share_memory(SIZE)
        with self.assertRaises((StopIteration, RuntimeError)):
            list(client.encode_many([picture(3)], mode="tiny"))
        pool = client._sharing.share.pool
        pool._collect()
        self.assertEqual(pool._free, [(0, SIZE)])

    def test_asyncio(self):
        asyncio.run(self.check_asyncio())

    async def check_asyncio(self):
        async with AsyncClient(self.server.address) as client:
            await client.share_memory(SIZE)
            await client.encode(picture(3), mode="tiny")
            hanging = self.server.registration = Hanging(self)
            call = asyncio.create_task(client.encode(picture(3), mode="tiny"))
            self.assertTrue(await asyncio.to_thread(hanging.arrived.wait, LONG))
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
            self.server.registration = registered
            self.behaviour.forgets = False
            await client.encode(picture(3), mode="tiny")
            self.assertIsNotNone(client._sharing.share)


if __name__ == "__main__":
    unittest.main()
