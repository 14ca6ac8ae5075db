"""Shared memory with the real server: same rows, no copies, and nothing left by clients that are killed."""

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import numpy as np
from deepencoder_client import AsyncClient, Client, UnsupportedError, protocol, shared_memory
from deepencoder_client.shared_memory import FOLDER, NAME_START, Memfd, NamedObject
from real_server import DATA, RealServer, shared

PAGE = DATA / "images" / "small_page.png"
TILES = DATA / "images" / "wide.jpg"  # seconds of work
SHARE = 8 << 20
TINY_BYTES = 73 * 1280 * 2
KILLED = -signal.SIGKILL
LIMIT_SECONDS = 60  # only keeps a broken build from waiting for ever

MEMFD = "/memfd:"  # how /proc shows one
REGIONS = "deepencoder_shared_memory_regions"
CONNECTIONS = "deepencoder_connections"
WRITTEN = 'deepencoder_shared_memory_copied_bytes_total{direction="write"}'
ENDED = 'deepencoder_shared_memory_ended_total{reason="client_ended"}'

# What a client does before it is killed, or kills itself; it prints the name of its object.
STAGES = {
    # It is there, and the server does not know of it.
    "made": """
pool = shared_memory.KINDS[0]({share})
pool.link()
die(pool)
""",
    # The server has it open, and an object's name is still there.
    "registered": """
shared_memory.KINDS[0].unlink = die
client.share_memory({share})
""",
    "shared": """
client.share_memory({share})
die(client._sharing.share.pool)
""",
    # Its image is being encoded; the test kills it.
    "encoding": """
client.share_memory({share})
print(client._sharing.share.pool.name, flush=True)
client.encode({tiles!r}, mode="gundam", dtype="fp32")
""",
    "rows held": """
client.share_memory({share})
rows = client.encode({page!r}, mode="tiny")
die(client._sharing.share.pool)
""",
}
HEAD = """
import os, signal
from deepencoder_client import Client, shared_memory

shared_memory.KINDS = (shared_memory.{kind},)

def die(pool):
    print(pool.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

client = Client({address!r})
"""


def has_name(name: str) -> bool:
    return os.path.exists(os.path.join(FOLDER, name))


def objects_of(process: int) -> list[str]:
    """Shared memory objects that a process has open, named or not. Nobody's are no memory."""
    folder = f"/proc/{process}/fd"
    targets = []
    for descriptor in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(os.path.join(folder, descriptor)))
    return [target for target in targets if target.startswith((FOLDER, MEMFD + NAME_START))]


class SharedMemoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shared()  # skips where nothing is built
        cls.server = RealServer("--shared-memory", "--shared-memory-bytes=64MiB", "--cache-bytes=0",
                                "--metrics-listen=127.0.0.1:0")  # fmt: skip
        cls.addClassCleanup(cls.server.stop)

    def written(self) -> int:
        return int(self.server.metrics()[WRITTEN])

    def eventually(self, condition, what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def sharer(self, size: int = SHARE) -> Client:
        client = Client(self.server.socket)
        self.addCleanup(client.close)
        client.share_memory(size)
        return client

    def forget(self, client: Client) -> None:
        """Makes the server forget the client's region, as if it had been restarted."""
        request = protocol.UnregisterRegionRequest(handle=client._sharing.share.handle).SerializeToString()
        client._forget(request, timeout=LIMIT_SECONDS)

    def test_same_rows_as_through_the_socket(self):
        for kinds in ((Memfd, NamedObject), (NamedObject,)):
            with (
                self.subTest(kinds=kinds),
                mock.patch.object(shared_memory, "KINDS", kinds),
            ):
                self.check_same_rows(kinds[0])

    def test_the_kind_that_the_server_takes(self):
        """A server that does not see this process, here by its number, gets a named object."""
        with mock.patch.object(shared_memory.os, "getpid", lambda: 1):
            client = self.sharer()
        self.assertIs(type(client._sharing.share.pool), NamedObject)
        self.assertFalse(has_name(client._sharing.share.pool.name))

        async def kind_of_pool():
            async with AsyncClient(self.server.socket) as other:
                with mock.patch.object(shared_memory.os, "getpid", lambda: 1):
                    await other.share_memory(SHARE)
                return type(other._sharing.share.pool)

        self.assertIs(asyncio.run(kind_of_pool()), NamedObject)

    def test_a_named_object_has_no_name_until_it_is_offered(self):
        """So a task that is cancelled while a thread still makes one leaves nothing."""
        pool = NamedObject(4096)
        self.assertFalse(has_name(pool.name))
        with shared_memory.offered(pool):
            self.assertTrue(has_name(pool.name))
        self.assertFalse(has_name(pool.name))

    def test_a_cancelled_share_memory_leaves_no_name(self):
        async def names_after_cancelling():
            making, go_on, made = threading.Event(), threading.Event(), []

            def make(size):
                making.set()
                go_on.wait(LIMIT_SECONDS)
                made.append(NamedObject(size))
                return made[0]

            async with AsyncClient(self.server.socket) as client:
                with mock.patch.object(shared_memory, "KINDS", (make,)):
                    task = asyncio.create_task(client.share_memory(4096))
                    self.assertTrue(await asyncio.to_thread(making.wait, LIMIT_SECONDS))
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            go_on.set()
            await asyncio.get_running_loop().shutdown_default_executor()  # waits for the thread
            return [pool.name for pool in made if has_name(pool.name)], len(made)

        self.assertEqual(asyncio.run(names_after_cancelling()), ([], 1))

    def check_same_rows(self, kind):
        before = self.written()
        client = self.sharer()
        self.assertIs(type(client._sharing.share.pool), kind)
        self.assertTrue(objects_of(self.server.pid))
        for target in objects_of(self.server.pid):
            self.assertTrue(target.endswith(" (deleted)"), "its name is not needed any more")
        array = np.arange(40 * 30 * 3, dtype=np.uint8).reshape(40, 30, 3)
        with Client(self.server.socket) as plain:
            for image, mode, dtype in (
                (PAGE, "tiny", "bf16"),
                (PAGE, "gundam", "fp16"),
                (array, "tiny", "fp32"),
            ):
                with self.subTest(mode=mode, dtype=dtype):
                    got = client.encode(image, mode=mode, dtype=dtype)
                    expected = plain.encode(image, mode=mode, dtype=dtype)
                    np.testing.assert_array_equal(got.stored, expected.stored)
                    self.assertEqual(got.geometry, expected.geometry)
        self.assertEqual(self.written() - before, TINY_BYTES + 273 * 1280 * 2 + 2 * TINY_BYTES)

    def test_rows_lie_in_the_memory_until_nobody_has_them(self):
        client = self.sharer(2 * (TINY_BYTES + (96 << 10)))  # for two calls
        memory = np.frombuffer(client._sharing.share.pool.memory, np.uint8)
        first = client.encode(PAGE, mode="tiny")
        self.assertTrue(np.shares_memory(first.stored, memory))
        self.assertFalse(first.stored.flags.writeable)
        kept = first.stored.copy()
        part = first.numpy()[3:5]
        second = client.encode(PAGE, mode="tiny")
        third = client.encode(PAGE, mode="tiny")  # no room: in the reply
        self.assertTrue(np.shares_memory(second.stored, memory))
        self.assertFalse(np.shares_memory(third.stored, memory))
        np.testing.assert_array_equal(first.stored, kept)
        np.testing.assert_array_equal(third.stored, kept)
        del first, second
        gc.collect()
        again = client.encode(PAGE, mode="tiny")  # `part` still holds the first
        self.assertTrue(np.shares_memory(again.stored, memory))
        self.assertFalse(np.shares_memory(again.stored, part))
        del part, again
        gc.collect()
        both = [client.encode(PAGE, mode="tiny") for _ in range(2)]
        self.assertTrue(all(np.shares_memory(rows.stored, memory) for rows in both))
        client.close()
        np.testing.assert_array_equal(both[0].stored, kept)

    def test_many_and_asyncio(self):
        expected = self.sharer().encode(PAGE, mode="tiny").stored.copy()
        before = self.written()
        client = self.sharer()
        results = list(client.encode_many([PAGE, b"no image", PAGE, PAGE], mode="tiny"))
        self.assertEqual([result.ok for result in results], [True, False, True, True])
        for index in (0, 2, 3):
            np.testing.assert_array_equal(results[index].unwrap().stored, expected)

        async def run():
            async with AsyncClient(self.server.socket) as other:
                await other.share_memory(SHARE)
                rows = await asyncio.gather(
                    *(other.encode(PAGE, mode="tiny") for _ in range(3))
                )
                call = asyncio.create_task(other.encode(PAGE, mode="gundam"))
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                many = [r async for r in other.encode_many([PAGE] * 3, mode="tiny")]
                return [*rows, *(result.unwrap() for result in many)]

        for rows in asyncio.run(run()):
            np.testing.assert_array_equal(rows.stored, expected)
        self.assertGreaterEqual(self.written() - before, 9 * TINY_BYTES)
        # What is given up is given back.
        del results, rows
        for result in client.encode_many([PAGE] * 8, mode="tiny", concurrency=4):
            result.unwrap()
            break
        client.encode(PAGE, mode="tiny")

    def test_a_forgotten_region_is_replaced(self):
        client = self.sharer()
        share = client._sharing.share
        self.forget(client)
        before = self.written()
        expected = client.encode(PAGE, mode="tiny").stored
        self.assertEqual(self.written(), before)
        self.assertIsNot(client._sharing.share, share)
        results = list(client.encode_many([PAGE], mode="tiny"))
        np.testing.assert_array_equal(results[0].unwrap().stored, expected)
        self.assertEqual(self.written() - before, TINY_BYTES)
        self.forget(client)
        results = list(client.encode_many([PAGE] * 3, mode="tiny", concurrency=2))
        self.assertTrue(all(result.ok for result in results))

    def test_a_server_that_does_not_share(self):
        with Client(shared().socket) as client:
            self.assertEqual(client.info().max_shared_memory_bytes, 0)
            with self.assertRaises(UnsupportedError) as caught:
                client.share_memory(SHARE)
            self.assertIn("--shared-memory", caught.exception.details)
            client.encode(PAGE, mode="tiny")

    def test_clients_that_are_killed_leave_nothing(self):
        with Client(self.server.socket) as first:
            first.share_memory(SHARE)
            first.encode(PAGE, mode="tiny")
        # What gRPC has not closed yet would be counted in `start`.
        self.eventually(
            lambda: self.server.metrics()[REGIONS] == 0
            and self.server.metrics()[CONNECTIONS] == 0,
            "regions and connections of other tests",
        )
        start = self.server.metrics()
        for _ in range(5):  # the connection of a scrape that has just ended may still be open
            time.sleep(0.2)
            start["process_open_fds"] = min(
                start["process_open_fds"], self.server.metrics()["process_open_fds"]
            )

        def as_before() -> bool:
            now = self.server.metrics()
            same = ("deepencoder_shared_memory_bytes", REGIONS, "process_open_fds",
                    "deepencoder_in_flight", "deepencoder_in_flight_bytes")  # fmt: skip
            return all(now[name] <= start[name] for name in same) and not objects_of(
                self.server.pid
            )

        for kind, stage in itertools.product(("Memfd", "NamedObject"), STAGES):
            with self.subTest(kind=kind, stage=stage):
                ended = self.server.metrics()[ENDED]
                code = HEAD + STAGES[stage]
                code = code.format(
                    kind=kind,
                    share=SHARE,
                    page=os.fspath(PAGE),
                    tiles=os.fspath(TILES),
                    address=self.server.socket,
                )
                child = subprocess.Popen(
                    [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
                )
                name = child.stdout.readline().strip()
                self.assertTrue(name.startswith(NAME_START), name)
                if stage == "encoding":
                    self.eventually(
                        lambda: self.server.metrics()["deepencoder_in_flight"] > 0, "in flight"
                    )
                    child.kill()
                self.assertEqual(child.wait(), KILLED)
                child.stdout.close()
                if stage == "made":
                    # Nobody but the kernel knew: the next client to come removes the name.
                    NamedObject(4096).unlink()
                else:
                    self.eventually(lambda: self.server.metrics()[ENDED] == ended + 1, "not seen")
                self.eventually(as_before, "something was left")
                self.assertFalse(has_name(name))


if __name__ == "__main__":
    unittest.main()
