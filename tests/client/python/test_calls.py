"""One call: what is sent, errors, retries, deadlines."""

import threading
import time
import unittest

import grpc
import numpy as np
from deepencoder_client import (
    AuthenticationError,
    CancelledError,
    Client,
    DeadlineError,
    DeepEncoderError,
    Health,
    InvalidRequestError,
    LimitError,
    OverloadedError,
    ReplyError,
    RetryPolicy,
    ServerError,
    UnavailableError,
    UnsupportedError,
)
from deepencoder_client.retry import Attempts

from fake_server import FakeServer, answer, fail, script, set_when_ended

Code = grpc.StatusCode
IMAGE = np.zeros((4, 6, 3), np.uint8)
QUICK = RetryPolicy(first_delay=0.001, max_delay=0.002)
FULL = (Code.RESOURCE_EXHAUSTED, "full", 0.01)
AWAY = (Code.UNAVAILABLE, "draining")


class CallTest(unittest.TestCase):
    def serve(self, behaviour=None) -> FakeServer:
        return self.enterContext_(FakeServer(behaviour))

    def client(self, server: FakeServer, **arguments) -> Client:
        return self.enterContext_(Client(server.address, **{"retry": QUICK, **arguments}))

    def enterContext_(self, manager):  # unittest has it from Python 3.11 on
        self.addCleanup(manager.__exit__, None, None, None)
        return manager.__enter__()

    def test_encode(self):
        server = self.serve()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        result = self.client(server).encode(IMAGE, mode="base", request_id="page-7", traceparent=trace)
        self.assertEqual(result.stored[0, 0], 6)
        self.assertEqual(result.timings.total, 0.25)
        self.assertEqual(server.requests[0].mode, 3)
        self.assertEqual(server.metadata[0]["x-request-id"], "page-7")
        self.assertEqual(server.metadata[0]["traceparent"], trace)

    def test_info_and_health(self):
        server = self.serve()
        client = self.client(server)
        self.assertEqual(client.info().model, "fake")
        self.assertIs(client.health(), Health.SERVING)
        self.assertIs(client.health("other"), Health.SERVICE_UNKNOWN)
        server.health = 2
        self.assertIs(client.health(), Health.NOT_SERVING)

    def test_every_code_has_its_exception(self):
        kinds = {
            Code.INVALID_ARGUMENT: InvalidRequestError,
            Code.RESOURCE_EXHAUSTED: LimitError,  # no time to come back: over a limit
            Code.UNAUTHENTICATED: AuthenticationError,
            Code.PERMISSION_DENIED: AuthenticationError,
            Code.CANCELLED: CancelledError,
            Code.UNIMPLEMENTED: UnsupportedError,
            Code.INTERNAL: ServerError,
            Code.UNKNOWN: ServerError,
        }
        for code, kind in kinds.items():
            with self.subTest(code):
                server = self.serve(script((code, "because")))
                with self.assertRaises(kind) as caught:
                    self.client(server).encode(IMAGE)
                self.assertIs(type(caught.exception), kind)
                self.assertIsInstance(caught.exception, DeepEncoderError)
                self.assertEqual(str(caught.exception), f"{code.name}: because")
                self.assertEqual(caught.exception.request_id, "id-of-the-server")
                self.assertEqual(server.calls, 1)  # no retry

    def test_full_and_away_are_tried_again(self):
        server = self.serve(script(FULL, AWAY, FULL))
        self.assertEqual(self.client(server).encode(IMAGE).tokens, 2)
        self.assertEqual(server.calls, 4)
        self.assertEqual(len({bytes(r.SerializeToString()) for r in server.requests}), 1)

    def test_attempts_end(self):
        server = self.serve(script(*[FULL] * 9))
        with self.assertRaisesRegex(OverloadedError, "full .after 5 attempts.") as caught:
            self.client(server).encode(IMAGE)
        self.assertAlmostEqual(caught.exception.retry_after, 0.01)
        self.assertEqual(server.calls, 5)

    def test_no_retries_if_so_wished(self):
        server = self.serve(script(AWAY))
        with self.assertRaises(UnavailableError):
            self.client(server, retry=RetryPolicy(max_attempts=1)).encode(IMAGE)
        self.assertEqual(server.calls, 1)

    def test_the_servers_time_is_kept(self):
        server = self.serve(script((Code.RESOURCE_EXHAUSTED, "full", 0.3)))
        start = time.monotonic()
        self.client(server).encode(IMAGE)
        self.assertGreaterEqual(time.monotonic() - start, 0.3)

    def test_a_hint_beyond_the_deadline_ends_the_call_at_once(self):
        server = self.serve(script((Code.RESOURCE_EXHAUSTED, "full", 100.0)))
        with self.assertRaises(OverloadedError):
            self.client(server).encode(IMAGE, timeout=50)
        self.assertEqual(server.calls, 1)

    def test_damaged_details_are_no_hint(self):
        def behaviour(request, context):
            fail(context, Code.RESOURCE_EXHAUSTED, "too large", raw=b"\xff\xff\xff")

        server = self.serve(behaviour)
        with self.assertRaises(LimitError):
            self.client(server).encode(IMAGE)

    def test_deadline(self):
        ended = threading.Event()

        def behaviour(request, context):
            set_when_ended(context, ended)
            ended.wait(30)
            return answer(request)

        server = self.serve(behaviour)
        client = self.client(server)
        while not server.calls:  # connecting may take all the time there is
            with self.assertRaises(DeadlineError) as caught:
                client.encode(IMAGE, timeout=1)
            self.assertIsInstance(caught.exception, TimeoutError)
        self.assertTrue(ended.wait(30))  # the server knows

    def test_nobody_there(self):
        server = FakeServer()
        with server:
            pass
        client = self.client(server)
        with self.assertRaises(UnavailableError):
            client.encode(IMAGE)
        with self.assertRaises(UnavailableError):
            client.health()

    def test_a_reply_of_another_contract(self):
        server = self.serve(lambda request, context: b"\x22\x7f")
        with self.assertRaises(ReplyError):
            self.client(server).encode(IMAGE)

    def test_large_messages(self):
        """Replies over gRPC's default of 4 MiB, and what is over the server's limit."""

        def behaviour(request, context):
            reply = answer(request)
            reply.shape[:] = [1024, 1280]
            reply.data = bytes(1024 * 1280 * 4)
            return reply

        server = self.serve(behaviour)
        client = self.client(server)
        self.assertEqual(client.encode(IMAGE, dtype="fp32").shape, (1024, 1280))
        with self.assertRaises(LimitError):
            client.encode(np.zeros((2048, 1024, 3), np.uint8))


class AttemptsTest(unittest.TestCase):
    def test_delays_double_up_to_the_longest_with_jitter(self):
        policy = RetryPolicy(max_attempts=20, first_delay=1, max_delay=8)
        attempts = Attempts(policy, None)
        for want in (1, 2, 4, 8, 8, 8):
            delay = attempts.delay_after(UnavailableError(Code.UNAVAILABLE, ""))
            self.assertTrue(want <= delay <= 1.5 * want, (want, delay))
        hint = OverloadedError(Code.RESOURCE_EXHAUSTED, "", retry_after=60)
        self.assertTrue(60 <= attempts.delay_after(hint) <= 90)

    def test_thousands_of_attempts(self):
        attempts = Attempts(RetryPolicy(max_attempts=5000), None)
        for _ in range(3000):
            delay = attempts.delay_after(UnavailableError(Code.UNAVAILABLE, ""))
        self.assertTrue(5 <= delay <= 7.5, delay)

    def test_jitter_differs(self):
        error = UnavailableError(Code.UNAVAILABLE, "")
        delays = {Attempts(RetryPolicy(), None).delay_after(error) for _ in range(20)}
        self.assertGreater(len(delays), 1)

    def test_policies_without_sense(self):
        for arguments in ({"max_attempts": 0}, {"first_delay": -1}, {"first_delay": 9}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                RetryPolicy(**arguments)
