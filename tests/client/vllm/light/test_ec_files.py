"""The file for ECExampleConnector, byte by byte. That vLLM reads it: wheel/test_example_connector.py."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from deepencoder_vllm import write_ec_file


class EcFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_writes_one_tensor(self):
        rows = np.arange(3 * 5, dtype=np.uint16).reshape(3, 5)
        file = write_ec_file(self.folder, "page-1", rows)
        self.assertEqual(file, self.folder / "page-1" / "encoder_cache.safetensors")
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        self.assertEqual(size % 8, 0)
        self.assertEqual(json.loads(data[8 : 8 + size]),
                         {"ec_cache": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [0, 30]}})
        self.assertEqual(data[8 + size :], rows.tobytes())
        self.assertEqual(os.listdir(file.parent), [file.name])

    def test_writes_rows_that_are_not_contiguous(self):
        rows = np.arange(20, dtype=np.float32).reshape(4, 5)[:, ::2]
        data = write_ec_file(self.folder, "x", rows, "fp32").read_bytes()
        self.assertTrue(data.endswith(rows.tobytes()))

    def test_replaces_a_file_only_by_a_complete_one(self):
        first = np.ones((2, 2), np.uint16)
        file = write_ec_file(self.folder, "x", first)
        before = file.read_bytes()
        with mock.patch("os.fsync", side_effect=OSError("disk full")):
            with self.assertRaisesRegex(OSError, "disk full"):
                write_ec_file(self.folder, "x", np.zeros((9, 2), np.uint16))
        self.assertEqual(file.read_bytes(), before)
        self.assertEqual(os.listdir(file.parent), [file.name])
        write_ec_file(self.folder, "x", np.zeros((9, 2), np.uint16))
        self.assertNotEqual(file.read_bytes(), before)

    def test_refuses_names_that_lead_elsewhere(self):
        for name in ("", ".", "..", "a/b", "../x", "a\\b", "a\0", "n" * 256):
            with self.assertRaisesRegex(ValueError, "cannot name a folder"):
                write_ec_file(self.folder, name, np.zeros((1, 1), np.uint16))
        self.assertEqual(os.listdir(self.folder), [])

    def test_refuses_rows_of_another_type(self):
        with self.assertRaisesRegex(ValueError, "are not bf16"):
            write_ec_file(self.folder, "x", np.zeros((1, 1), np.float32))
        with self.assertRaisesRegex(ValueError, "float16 are not bf16"):
            write_ec_file(self.folder, "x", np.zeros((1, 1), np.float16))
        with self.assertRaisesRegex(ValueError, "uint16 are not fp16"):
            write_ec_file(self.folder, "x", np.zeros((1, 1), np.uint16), "fp16")
        with self.assertRaisesRegex(ValueError, "are not fp32"):
            write_ec_file(self.folder, "x", np.zeros(4, np.float32), "fp32")


if __name__ == "__main__":
    unittest.main()
