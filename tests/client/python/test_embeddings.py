"""Replies become arrays, tensors and files."""

import errno
import io
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from deepencoder_client import (
    MissingPackageError,
    ReplyError,
    write_safetensors,
)
from deepencoder_client.protocol import EncodeImageResponse, number_of
from deepencoder_client.wire import parse_reply

from real_server import read_safetensors

NUMBERS = np.array([[1.0, -2.5, 0.0], [3.140625, 1e-3, -65280.0]], np.float32)
BF16 = (NUMBERS.view(np.uint32) >> 16).astype("<u2")  # cut off
STORED = {"bf16": BF16, "fp16": NUMBERS.clip(-65000, 65000).astype("<f2"), "fp32": NUMBERS}


def reply(stored: str, **changes) -> EncodeImageResponse:
    """A reply with STORED[stored], and some fields otherwise."""
    rows = STORED[stored]
    message = EncodeImageResponse(
        dtype=number_of("DType", stored), shape=rows.shape, data=rows.tobytes()
    )
    message.geometry.tile_columns = 2
    message.timings.compute = 0.5
    for name, value in changes.items():
        message.ClearField(name)
        if name == "shape":
            message.shape.extend(value)
        else:
            setattr(message, name, value)
    return message


class EmbeddingsTest(unittest.TestCase):
    def test_every_dtype_at_every_alignment(self):
        for dtype, rows in STORED.items():
            for name in ("", "a", "ab", "abc"):  # moves the rows within the reply
                with self.subTest(dtype=dtype, name=name):
                    result = parse_reply(reply(dtype, id=name).SerializeToString())
                    self.assertEqual(
                        (result.dtype, result.shape, result.tokens), (dtype, (2, 3), 2)
                    )
                    self.assertEqual(result.geometry.tile_columns, 2)
                    self.assertEqual(result.timings.compute, 0.5)
                    np.testing.assert_array_equal(result.stored, rows)
                    self.assertTrue(result.numpy().flags.aligned)

    def test_rows_may_precede_other_fields(self):
        parts = reply("fp32")
        head = EncodeImageResponse(data=parts.data).SerializeToString()
        parts.ClearField("data")
        result = parse_reply(head + parts.SerializeToString())
        np.testing.assert_array_equal(result.numpy(), NUMBERS)

    def test_float32(self):
        cut = (BF16.astype(np.uint32) << 16).view(np.float32)
        for dtype, want in (("bf16", cut), ("fp16", STORED["fp16"]), ("fp32", NUMBERS)):
            got = parse_reply(reply(dtype).SerializeToString()).to_float32()
            self.assertEqual(got.dtype, np.float32)
            self.assertTrue(got.flags.writeable)
            np.testing.assert_array_equal(got, want.astype(np.float32))

    def test_bf16_with_and_without_ml_dtypes(self):
        result = parse_reply(reply("bf16").SerializeToString())
        self.assertEqual(result.numpy().dtype.name, "bfloat16")
        np.testing.assert_array_equal(result.numpy().astype(np.float32), result.to_float32())
        with mock.patch.dict("sys.modules", {"ml_dtypes": None}):
            self.assertEqual(result.numpy().dtype, np.uint16)

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
        for dtype, want in dtypes.items():
            for name in ("", "a", "ab", "abc"):
                result = parse_reply(reply(dtype, id=name).SerializeToString())
                tensor = result.torch()
                self.assertEqual((tensor.dtype, tuple(tensor.shape)), (want, (2, 3)))
                np.testing.assert_array_equal(tensor.float().numpy(), result.to_float32())
                if result.stored.flags.aligned:
                    self.assertEqual(tensor.data_ptr(), result.stored.ctypes.data)

    def test_torch_is_optional(self):
        result = parse_reply(reply("bf16").SerializeToString())
        with mock.patch.dict("sys.modules", {"torch": None}):
            with self.assertRaisesRegex(MissingPackageError, "pip install torch"):
                result.torch()


class DamagedReplyTest(unittest.TestCase):
    def test_contradictions(self):
        for changes in ({"data": b"123"}, {"shape": [6]}, {"shape": [2, 4]}, {"dtype": 0},
                        {"dtype": 99}):  # fmt: skip
            with self.subTest(changes), self.assertRaises(ReplyError):
                parse_reply(reply("fp32", **changes).SerializeToString())

    def test_every_shorter_reply_and_wrong_wire_types(self):
        whole = reply("fp16").SerializeToString()
        for size in range(len(whole)):
            # What ends between fields parses, and lacks the rows or only its timings.
            try:
                self.assertEqual(parse_reply(whole[:size]).shape, (2, 3))
            except ReplyError:
                pass
        for tail in (b"\x0b", b"\x22\x7f", b"\x22" + b"\xff" * 12, b"\x09\x01", b"\x0d"):
            with self.subTest(tail), self.assertRaises(ReplyError):
                parse_reply(whole + tail)

    def test_fields_of_a_later_contract_are_passed_over(self):
        later = struct.pack("<BBdBBI", 0xA1, 0x06, 1.0, 0xAD, 0x06, 7)  # field 100, fixed
        result = parse_reply(later + reply("fp32").SerializeToString())
        np.testing.assert_array_equal(result.numpy(), NUMBERS)


class FileTest(unittest.TestCase):
    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for dtype, rows in STORED.items():
                result = parse_reply(reply(dtype).SerializeToString())
                result.save(Path(folder, "a.safetensors"))
                got = read_safetensors(Path(folder, "a.safetensors"))["embeddings"]
                np.testing.assert_array_equal(got, rows)
                result.save(f"{folder}/a.npy")
                want = result.to_float32() if dtype == "bf16" else rows
                np.testing.assert_array_equal(np.load(f"{folder}/a.npy"), want)
            with self.assertRaisesRegex(ValueError, "npy"):
                result.save(f"{folder}/a.txt")
            self.assertEqual(sorted(path.name for path in Path(folder).iterdir()),
                             ["a.npy", "a.safetensors"])  # fmt: skip

    def test_a_disk_that_is_full_when_the_file_is_closed_leaves_nothing(self):
        class FullDisk(io.BytesIO):
            def close(self):
                if not self.closed:
                    super().close()
                    raise OSError(errno.ENOSPC, "No space left on device")

        def opened(path, mode):
            Path(path).touch()
            return FullDisk()

        result = parse_reply(reply("fp32").SerializeToString())
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch("builtins.open", opened), self.assertRaisesRegex(OSError, "No space"):
                result.save(f"{folder}/a.safetensors")
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_many_tensors_in_a_file(self):
        tensors = {f'ä"{dtype}': parse_reply(reply(dtype).SerializeToString()) for dtype in STORED}
        with tempfile.TemporaryDirectory() as folder:
            write_safetensors(Path(folder, "a"), tensors)
            got = read_safetensors(Path(folder, "a"))
        for name, result in tensors.items():
            np.testing.assert_array_equal(got[name], result.stored)

    def test_a_folder_that_is_not_there(self):
        with self.assertRaises(OSError):
            parse_reply(reply("fp32").SerializeToString()).save("/no/such/folder/a.npy")
