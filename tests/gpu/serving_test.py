#!/usr/bin/env python3
"""The whole server on a GPU against the conformance sequences: files in by the client, sequences out, row for row.

    DEEPENCODER_BIN=BUNDLE [DEEPENCODER_CONFORMANCE_DIR=...] serving_test.py

Without the folder only the small model's sequences (tests/data) are compared. DEEPENCODER_DEVICE=cpu tries the test itself where
there is no GPU. Needs numpy.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1] / "bench"))
from encoder_test import CONFORMANCE, DATA, DEPTHS, IMAGES, read_safetensors, relative_error  # noqa: E402
from service_tools import PROGRAMS, Server, synthesize  # noqa: E402

DEVICE = os.environ.get("DEEPENCODER_DEVICE", "cuda")
SEQUENCES = {"mini": [("gundam", "wide.jpg"), ("tiny", "small_page.png")], "full": [("gundam", "page_rgb.jpg")]}
# Of the reference in the same type, for a whole sequence (as in tests/integration/serving_test.cc).
BARS = {"bf16": 1.25e-2, "fp16": 1.5e-3}


def values_of(size, mode, image):
    """The sequence's file; None where there is none."""
    name = f"encoder/{size}.sequence.{mode}.{pathlib.Path(image).stem}.safetensors"
    return next((folder / name for folder in (CONFORMANCE, DATA) if (folder / name).exists()), None)


class Serving(unittest.TestCase):
    def check(self, size, compute):
        found = [(mode, image, path) for mode, image in SEQUENCES[size] if (path := values_of(size, mode, image))]
        if not found:
            self.skipTest(f"no sequence of the {size} model in {CONFORMANCE}")
        depth, layers = DEPTHS[size]
        with tempfile.TemporaryDirectory() as folder:
            model = synthesize(pathlib.Path(folder) / "model", depth, layers)
            with Server(model, folder, f"--device={DEVICE}", f"--compute-dtype={compute}") as server:
                for mode, image, path in found:
                    subprocess.run([PROGRAMS / "deepencoder", "encode", IMAGES / image, f"--server={server.address}",
                                    f"--mode={mode}", f"--out-dir={folder}", "--format=npy", "--dtype=fp32", "--quiet",
                                    "--timeout=5m"], check=True)
                    rows = np.load(pathlib.Path(folder) / (pathlib.Path(image).stem + ".npy"))
                    want = read_safetensors(path)["sequence"]
                    self.assertEqual(rows.shape, want.shape, path.name)
                    error = relative_error(rows, want.astype(np.float32))
                    print(f"  {path.stem:34} {compute}: {error:.3e} (bar {BARS[compute]:.3e})")
                    self.assertLessEqual(error, BARS[compute], path.name)
                self.assertEqual(server.stop(), 0, "after SIGTERM")

    def test_mini_bf16(self):
        self.check("mini", "bf16")

    def test_mini_fp16(self):
        if DEVICE == "cpu":
            self.skipTest("the CPU has no fp16")
        self.check("mini", "fp16")

    def test_full_bf16(self):
        self.check("full", "bf16")


if __name__ == "__main__":
    unittest.main(verbosity=2)
