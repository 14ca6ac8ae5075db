"""TLS, tokens, unix sockets, addresses."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import grpc
import trustme
from deepencoder_client import (
    AsyncClient,
    AuthenticationError,
    Client,
    RetryPolicy,
    Tls,
    UnavailableError,
)

from fake_server import FakeServer, answer
from test_many import picture

ONCE = RetryPolicy(max_attempts=1)


def checks_token(request, context):
    """Lets in who has the token."""
    if dict(context.invocation_metadata()).get("authorization") != "Bearer sesame":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    return answer(request)


class TlsTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.authority = trustme.CA()
        cls.server_certificate = cls.authority.issue_cert("encoder.example")
        cls.client_certificate = cls.authority.issue_cert("reader.example")
        cls.roots = cls.path("ca.pem", cls.authority.cert_pem)
        chain = b"".join(blob.bytes() for blob in cls.client_certificate.cert_chain_pems)
        cls.chain = Path(cls.folder.name, "client.pem")
        cls.chain.write_bytes(chain)
        cls.key = cls.path("client.key", cls.client_certificate.private_key_pem)

    @classmethod
    def path(cls, name, blob):
        path = Path(cls.folder.name, name)
        path.write_bytes(blob.bytes())
        return path

    def serve(self, *, asks_certificate=False):
        certificate = self.server_certificate
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        pairs = [(certificate.private_key_pem.bytes(), chain)]
        roots = self.authority.cert_pem.bytes() if asks_certificate else None
        credentials = grpc.ssl_server_credentials(pairs, roots, asks_certificate)
        return FakeServer(checks_token, credentials=credentials)

    def tls(self, **arguments):
        return Tls(**{"root_certificates": self.roots, "server_name": "encoder.example",
                      **arguments})  # fmt: skip

    async def test_server_certificate_and_token(self):
        with self.serve() as server:
            with Client(server.address, tls=self.tls(), token="sesame", retry=ONCE) as client:
                self.assertEqual(client.encode(picture(3)).stored[0, 0], 3)
            content = Path(self.roots).read_bytes()
            tls = self.tls(root_certificates=content)
            async with AsyncClient(server.address, tls=tls, token="sesame") as client:
                self.assertEqual((await client.encode(picture(3))).stored[0, 0], 3)
            with Client(server.address, tls=self.tls(), token="please", retry=ONCE) as client:
                with self.assertRaises(AuthenticationError):
                    client.encode(picture(3))

    async def test_whom_not_to_trust(self):
        with self.serve() as server:
            other = trustme.CA().cert_pem.bytes()
            for tls in (self.tls(root_certificates=other), self.tls(server_name="else.example"),
                        True, False):  # fmt: skip
                with self.subTest(tls), Client(server.address, tls=tls, retry=ONCE) as client:
                    with self.assertRaises(UnavailableError):
                        client.encode(picture(3))
            self.assertEqual(server.calls, 0)

    async def test_client_certificate(self):
        with self.serve(asks_certificate=True) as server:
            tls = self.tls(client_certificate=self.chain, client_key=self.key)
            with Client(server.address, tls=tls, token="sesame") as client:
                self.assertEqual(client.encode(picture(3)).stored[0, 0], 3)
            with Client(server.address, tls=self.tls(), token="sesame", retry=ONCE) as client:
                with self.assertRaises(UnavailableError):
                    client.encode(picture(3))
        with self.assertRaisesRegex(ValueError, "go together"):
            Tls(client_certificate=self.chain)


class AddressTest(unittest.IsolatedAsyncioTestCase):
    def test_unix_socket_and_a_token_that_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = iter(["sesame", "stale"])
            address = f"unix:{folder}/socket"
            with FakeServer(checks_token, address=address) as server:
                with Client(server.address, token=lambda: next(tokens)) as client:
                    self.assertEqual(client.encode(picture(3)).stored[0, 0], 3)
                    with self.assertRaises(AuthenticationError):
                        client.encode(picture(3))

    def test_tokens_are_not_sent_in_the_clear(self):
        for server in ("encoder.example:50051", "10.0.0.1:443", "dns:///localhost.example:1",
                       "127.0.0.1.example:1", "ipv4:127.0.0.1:1,10.0.0.1:1"):  # fmt: skip
            with self.subTest(server), self.assertRaisesRegex(ValueError, "readable"):
                Client(server, token="sesame")
        for server in ("localhost:1", "[::1]:1", "127.0.0.1:1", "unix:/x"):
            Client(server, token="sesame").close()

    async def test_calls_are_spread_over_all_addresses(self):
        with FakeServer() as one, FakeServer() as two:
            target = f"ipv4:{one.address},{two.address}"
            with Client(target) as client:
                while not (one.calls and two.calls):  # the first calls may find one connected
                    client.encode(picture(3))
                before = one.calls, two.calls
                for _ in range(4):
                    client.encode(picture(3))
                self.assertEqual((one.calls, two.calls), (before[0] + 2, before[1] + 2))
            async with AsyncClient(target) as client:
                while (one.calls, two.calls) < (before[0] + 3, before[1] + 3):
                    await client.encode(picture(3))

    def test_address_from_the_environment(self):
        with FakeServer() as server:
            with mock.patch.dict(os.environ, {"DEEPENCODER_SERVER": server.address}):
                with Client() as client:
                    self.assertEqual(client.info().model, "fake")
