"""What the client is asked for, and what the command line does with its answer."""

import contextlib
import io
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from deepencoder_vllm import CHECKED_VLLM
from deepencoder_vllm.__main__ import main
from deepencoder_vllm.service import ClientEncoder
from deepencoder_vllm.versions import version_note


class FakeClient:
    """Has the part of deepencoder_client.Client that the package uses."""

    calls = []
    error = None

    def __init__(self, server=None, *, tls=False, token=None):
        self.settings = (server, tls, token() if token else None)
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def encode(self, image, **options):
        self.calls.append((image, options))
        if self.error:
            raise self.error
        return types.SimpleNamespace(stored=np.zeros((273, 1280), np.uint16), tokens=273)

    def close(self):
        self.closed = True


class FakeError(Exception):
    pass


def fake_module(**changes):
    module = types.ModuleType("deepencoder_client")
    module.Client = type("Client", (FakeClient,), {"calls": [], **changes})
    module.Tls = lambda root_certificates: ("tls", root_certificates)
    module.DeepEncoderError = FakeError
    return module


class ServiceTest(unittest.TestCase):
    def test_settings_reach_the_client(self):
        with mock.patch.dict(sys.modules, deepencoder_client=fake_module()), \
             mock.patch.dict("os.environ", TOKEN="secret"):
            plain = ClientEncoder({}, "bf16")
            full = ClientEncoder(
                {"server": "gpu:1", "tls_ca": "ca.pem", "token_env": "TOKEN", "timeout": 5}, "fp16")
        self.assertEqual(plain._client.settings, (None, False, None))
        self.assertEqual(full._client.settings, ("gpu:1", ("tls", "ca.pem"), "secret"))
        view = np.zeros((640, 640, 3), np.uint8)
        self.assertEqual(full.encode(view, "small").shape, (273, 1280))
        (image, options), = full._client.calls
        self.assertIs(image, view)
        self.assertEqual(options, {"mode": "small", "dtype": "fp16", "timeout": 5.0})
        full.close()
        self.assertTrue(full._client.closed)

    def run_main(self, module, folder, uuid="page-1"):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(sys.modules, deepencoder_client=module), \
             contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["write", "page.png", "--uuid", uuid, "--folder", folder])
        return status, out.getvalue(), err.getvalue()

    def test_command_writes_a_file(self):
        module = fake_module()
        with tempfile.TemporaryDirectory() as folder:
            status, out, _ = self.run_main(module, folder)
            self.assertEqual(status, 0)
            self.assertIn("273 rows", out)
            self.assertTrue(Path(folder, "page-1", "encoder_cache.safetensors").exists())
        self.assertEqual(module.Client.calls,
                         [("page.png", {"mode": "gundam", "max_tiles": 6, "dtype": "bf16"})])

    def test_command_tells_failures(self):
        with tempfile.TemporaryDirectory() as folder:
            status, _, err = self.run_main(fake_module(error=FakeError("server is full")), folder)
            self.assertEqual((status, err), (1, "deepencoder_vllm: server is full\n"))
            status, _, err = self.run_main(fake_module(), folder, uuid="a/b")
            self.assertEqual(status, 1)
            self.assertIn("cannot name a folder", err)

    def test_other_releases_are_named(self):
        self.assertIsNone(version_note(CHECKED_VLLM[0]))
        self.assertIn("0.1.0 was not checked", version_note("0.1.0"))


if __name__ == "__main__":
    unittest.main()
