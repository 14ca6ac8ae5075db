"""The premise of the connector, on the real server: views encoded one by one give the image's rows.

The image goes to the server as a file in gundam. Its views, made here by Pillow as vLLM's processor
makes them, go one by one in modes base and small. The assembled rows have to be the same bits.
"""

import io
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

from deepencoder_vllm.geometry import TILE_SIDE, tile_grid
from deepencoder_vllm.service import ClientEncoder
from deepencoder_vllm.views import assemble

PROGRAMS = Path(os.environ.get("DEEPENCODER_BIN", "build/bin"))
START_SECONDS = 90


def start_server(folder, cleanup):
    """Its address. A synthetic checkpoint of few layers, in fp32 on one CPU thread."""
    for program in ("deepencoder", "deepencoder-server"):
        if not (PROGRAMS / program).is_file():
            raise unittest.SkipTest(f"{PROGRAMS / program} is not built")
    subprocess.run([PROGRAMS / "deepencoder", "checkpoint", "synthesize", folder / "checkpoint",
                    "--sam-depth", "3", "--clip-layers", "2"], check=True, capture_output=True)
    ready = folder / "ready"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [PROGRAMS / "deepencoder-server", f"--model={folder / 'checkpoint'}", "--device=cpu",
             "--compute-dtype=fp32", "--threads=1", "--modes=small,base,gundam", "--batch-buckets=1",
             "--no-warm-up", "--metrics-listen=", "--listen=127.0.0.1:0", f"--ready-file={ready}"],
            stdout=log, stderr=log)
    cleanup(process.wait)
    cleanup(process.terminate)
    deadline = time.monotonic() + START_SECONDS
    while not (ready.exists() and ready.read_text().endswith("\n")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not start:\n{(folder / 'log').read_text()}")
        time.sleep(0.05)
    return next(line.removeprefix("grpc=") for line in ready.read_text().splitlines()
                if line.startswith("grpc="))


class ServerTest(unittest.TestCase):
    def test_views_give_the_rows_of_the_image(self):
        from deepencoder_client import Client
        from PIL import Image, ImageOps

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        address = start_server(Path(folder.name), self.addCleanup)
        noise = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
        encoder = ClientEncoder({"server": address, "timeout": 300}, "fp32")
        self.addCleanup(encoder.close)
        for size in ((700, 400), (300, 200)):
            image = Image.fromarray(noise).resize(size)
            file = io.BytesIO()
            image.save(file, "PNG")
            with Client(address) as client:
                whole = client.encode(file.getvalue(), mode="gundam", max_tiles=6, dtype="fp32",
                                      timeout=300)
            grid = tile_grid(*size)
            self.assertEqual(grid, (whole.geometry.tile_columns, whole.geometry.tile_rows))
            base = ImageOps.pad(image, (1024, 1024), color=(127, 127, 127))
            tiles = []
            if grid != (1, 1):
                mosaic = image.resize((TILE_SIDE * grid.columns, TILE_SIDE * grid.rows))
                tiles = [mosaic.crop((x, y, x + TILE_SIDE, y + TILE_SIDE))
                         for y in range(0, mosaic.height, TILE_SIDE)
                         for x in range(0, mosaic.width, TILE_SIDE)]
            rows = assemble(encoder.encode(np.asarray(base), "base"),
                            [encoder.encode(np.asarray(tile), "small") for tile in tiles], grid)
            np.testing.assert_array_equal(rows, whole.stored, f"{size}")


if __name__ == "__main__":
    unittest.main()
