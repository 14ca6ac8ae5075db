"""The asyncio client: the same surface, and cancelling."""

import asyncio
import contextlib
import threading
import unittest
from unittest import mock

import grpc
from deepencoder_client import (
    AsyncClient,
    DeadlineError,
    Health,
    InvalidRequestError,
    LimitError,
    OverloadedError,
    RetryPolicy,
    UnavailableError,
)

from fake_server import FakeServer, answer, fail, script, set_when_ended
from test_many import QUICK, Gauge, LastFirst, picture

Code = grpc.StatusCode


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    @contextlib.asynccontextmanager
    async def connected(self, behaviour=None, **arguments):
        with FakeServer(behaviour) as self.server:
            async with AsyncClient(self.server.address, **{"retry": QUICK, **arguments}) as client:
                yield client

    async def test_encode_info_health(self):
        async with self.connected() as client:
            result = await client.encode(picture(6), mode="tiny", request_id="x", traceparent="y")
            self.assertEqual(result.stored[0, 0], 6)
            self.assertEqual(self.server.metadata[0]["x-request-id"], "x")
            self.assertEqual(self.server.metadata[0]["traceparent"], "y")
            self.assertEqual((await client.info()).model, "fake")
            self.assertIs(await client.health(), Health.SERVING)
            self.assertIs(await client.health("other"), Health.SERVICE_UNKNOWN)

    async def test_retries(self):
        steps = (Code.RESOURCE_EXHAUSTED, "full", 0.01), (Code.UNAVAILABLE, "away")
        async with self.connected(script(*steps)) as client:
            await client.encode(picture(1))
            self.assertEqual(self.server.calls, 3)
        async with self.connected(script(*[steps[0]] * 9)) as client:
            with self.assertRaises(OverloadedError) as caught:
                await client.encode(picture(1))
            self.assertEqual((caught.exception.attempts, self.server.calls), (5, 5))

    async def test_errors(self):
        steps = (Code.INVALID_ARGUMENT, "broken"), (Code.RESOURCE_EXHAUSTED, "too large")
        async with self.connected(script(*steps)) as client:
            with self.assertRaisesRegex(InvalidRequestError, "broken") as caught:
                await client.encode(picture(1))
            self.assertEqual(caught.exception.request_id, "id-of-the-server")
            with self.assertRaises(LimitError):
                await client.encode(picture(1))
            with self.assertRaises(FileNotFoundError):
                await client.encode("no-such-file.png")
        with self.assertRaises(UnavailableError):
            async with AsyncClient("127.0.0.1:1", retry=RetryPolicy(max_attempts=1)) as client:
                await client.encode(picture(1))

    async def test_deadline_and_cancelling_reach_the_server(self):
        late, cancelled = 1, 2  # calls, by their pictures' widths
        started = threading.Event()  # the one that is cancelled
        ended = {late: threading.Event(), cancelled: threading.Event()}

        def behaviour(request, context):
            set_when_ended(context, ended[request.raw.width])
            if request.raw.width == cancelled:
                started.set()
            ended[request.raw.width].wait(30)
            return answer(request)

        async with self.connected(behaviour) as client:
            while not self.server.calls:  # connecting may take all the time there is
                with self.assertRaises(DeadlineError):
                    await client.encode(picture(late), timeout=1)
            self.assertTrue(await asyncio.to_thread(ended[late].wait, 30))
            task = asyncio.create_task(client.encode(picture(cancelled)))
            self.assertTrue(await asyncio.to_thread(started.wait, 30))
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertTrue(await asyncio.to_thread(ended[cancelled].wait, 30))

    async def test_many_bounded_and_in_order(self):
        gauge = Gauge(wanted=4)
        async with self.connected(gauge) as client:
            images = [picture(1)] * 20
            self.assertEqual(len([r async for r in client.encode_many(images, concurrency=4)]), 20)
            self.assertEqual(gauge.highest, 4)
        async with self.connected(LastFirst(4)) as client:
            images = (picture(w) for w in range(1, 9))
            results = [r async for r in client.encode_many(images, concurrency=4, progress=True)]
            self.assertEqual([r.unwrap().stored[0, 0] for r in results], list(range(1, 9)))

    async def test_many_errors(self):
        def behaviour(request, context):
            if request.raw.width == 3:
                fail(context, Code.INVALID_ARGUMENT, "broken")
            return answer(request)

        async with self.connected(behaviour) as client:
            sources = [picture(2), picture(3), "no-such-file.png"]
            results = [r async for r in client.encode_many(sources)]
        self.assertEqual(
            [type(r.error) for r in results], [type(None), InvalidRequestError, FileNotFoundError]
        )

    async def test_results_do_not_wait_for_a_slow_source(self):
        seen = asyncio.Event()

        async def source():
            yield picture(1)
            await seen.wait()  # the first result
            yield picture(2)

        async with self.connected() as client:
            widths = []
            async for result in client.encode_many(source()):
                widths.append(result.unwrap().stored[0, 0])
                seen.set()
            self.assertEqual(widths, [1, 2])

    async def test_a_source_that_raises(self):
        async def broken():
            yield picture(1)
            raise RuntimeError("no more paper")

        async with self.connected() as client:
            with self.assertRaisesRegex(RuntimeError, "no more paper"):
                async for result in client.encode_many(broken()):
                    self.assertTrue(result.ok)

    async def test_leaving_early_cancels(self):
        arrived, ended = threading.Event(), threading.Event()

        def behaviour(request, context):
            if request.raw.width > 1:
                set_when_ended(context, ended)
                arrived.set()
                ended.wait(30)
            return answer(request)

        async with self.connected(behaviour) as client:
            images = [picture(w) for w in range(1, 100)]
            async with contextlib.aclosing(client.encode_many(images, concurrency=4)) as results:
                async for result in results:
                    self.assertEqual(result.index, 0)
                    break
                # A call that is cancelled earlier never gets to the server's function.
                self.assertTrue(await asyncio.to_thread(arrived.wait, 30))
            self.assertTrue(await asyncio.to_thread(ended.wait, 30))
            self.assertLess(self.server.calls, 20)

    async def test_a_close_that_is_cancelled_closes(self):
        async with self.connected() as client:
            with mock.patch.object(client, "_unregister", side_effect=asyncio.CancelledError):
                with self.assertRaises(asyncio.CancelledError):
                    await client.close()
            self.assertIs(client._channel.get_state(), grpc.ChannelConnectivity.SHUTDOWN)

    async def test_wrong_arguments(self):
        async with self.connected() as client:
            with self.assertRaises(ValueError):
                await client.encode(picture(1), mode="huge")
            with self.assertRaises(ValueError):
                async for _ in client.encode_many([], concurrency=0):
                    pass
