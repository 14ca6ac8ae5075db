"""The real server: values as the reference's, whatever way an image takes."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import PIL.Image
from deepencoder_client import AsyncClient, Client, Health, InvalidRequestError, LimitError, Timings

import real_server
from real_server import DATA, read_safetensors

# The reference's sequences are stored as F16; a server that computes in fp32 must come as close
# after its values are rounded so.
BAR = 5e-5


def sequences() -> list[Path]:
    """mini.sequence.MODE.IMAGE.safetensors: those here, and those of the larger folder if given."""
    folders = [DATA / "encoder"]
    if os.environ.get("DEEPENCODER_CONFORMANCE_DIR"):
        folders.append(Path(os.environ["DEEPENCODER_CONFORMANCE_DIR"]) / "encoder")
    found = {f.name: f for d in folders for f in sorted(d.glob("mini.sequence.*.safetensors"))}
    return list(found.values())


class RealServerTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = real_server.shared()

    def setUp(self):
        self.client = Client(self.server.address)
        self.addCleanup(self.client.close)

    def test_sequences_are_the_references(self):
        served = {mode.name for mode in self.client.info().modes}
        compared = 0
        for file in sequences():
            mode, image = file.name.split(".")[2:4]
            path = next(iter((DATA / "images").glob(f"{image}.*")), None)
            if mode not in served or path is None:
                continue
            with self.subTest(file.name):
                want = read_safetensors(file)["sequence"].astype(np.float64)
                result = self.client.encode(path, mode=mode, dtype="fp32", timeout=120)
                got = result.numpy().astype(np.float16).astype(np.float64)
                self.assertEqual(got.shape, want.shape)
                error = np.linalg.norm(got - want) / np.linalg.norm(want)
                self.assertLess(error, BAR)
                compared += 1
        self.assertGreater(compared, 0)

    async def test_every_way_gives_the_same_rows(self):
        path = DATA / "images" / "small_page.png"
        picture = PIL.Image.open(path)
        want = self.client.encode(path, mode="tiny").stored
        self.assertEqual(want.shape, (73, 1280))
        for source in (str(path), path.read_bytes(), picture, np.asarray(picture.convert("RGB"))):
            got = self.client.encode(source, mode="tiny").stored
            np.testing.assert_array_equal(got, want)
        with Client(self.server.socket) as client:
            np.testing.assert_array_equal(client.encode(path, mode="tiny").stored, want)
        async with AsyncClient(self.server.address) as client:
            got = (await client.encode(path, mode="tiny")).stored
            np.testing.assert_array_equal(got, want)

    def test_pil_images_as_the_server_reads_their_files(self):
        for name, alpha in (
            ("page_gray.png", None),
            ("gray16.png", None),
            ("exif_6.jpg", None),
            ("la.png", "drop"),
            ("la.png", "white"),
        ):
            path = DATA / "images" / name
            with self.subTest(name=name, alpha=alpha), PIL.Image.open(path) as picture:
                want = self.client.encode(path, mode="tiny", alpha=alpha)
                got = self.client.encode(picture, mode="tiny", alpha=alpha)
                self.assertEqual(got.geometry, want.geometry)
                np.testing.assert_array_equal(got.stored, want.stored)

    def test_the_cpp_program_gets_the_same_bytes(self):
        path = DATA / "images" / "small_page.png"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "rows.safetensors")
            subprocess.run(
                [self.server.cli, "encode", path, "--mode=tiny", f"--server={self.server.address}",
                 f"--out={out}"],
                check=True, capture_output=True,
            )  # fmt: skip
            (want,) = read_safetensors(out).values()
            ours = Path(folder, "ours.safetensors")
            self.client.encode(path, mode="tiny").save(ours)
            (got,) = read_safetensors(ours).values()
        np.testing.assert_array_equal(got, want)

    def test_dtypes(self):
        path = DATA / "images" / "small_page.png"
        exact = self.client.encode(path, mode="tiny", dtype="fp32").to_float32()
        for dtype, bar in (("bf16", 2.0**-8), ("fp16", 2.0**-11)):  # half a unit in the last place
            rows = self.client.encode(path, mode="tiny", dtype=dtype).to_float32()
            np.testing.assert_allclose(rows, exact, rtol=bar, atol=1e-6)

    def test_rows_are_used_where_the_reply_has_them(self):
        path = DATA / "images" / "small_page.png"
        for dtype in ("bf16", "fp16", "fp32"):
            result = self.client.encode(path, mode="tiny", dtype=dtype)
            self.assertTrue(result.stored.flags.aligned, dtype)
            self.assertTrue(np.shares_memory(result.numpy().view(np.uint8), result.stored), dtype)

    def test_stages_do_not_overlap(self):
        # Three views for one slot: the second and third wait while the first is computed.
        image = DATA / "images" / "size_1280x640.jpg"
        timings = self.client.encode(image, mode="gundam", dtype="fp16", timeout=120).timings
        seconds = dataclasses.asdict(timings)
        total = seconds.pop("total")
        self.assertGreater(timings.compute, 0)
        self.assertLessEqual(sum(seconds.values()), total)

    def test_info_counts_the_tokens(self):
        info = self.client.info()
        self.assertTrue(info.synthetic)
        self.assertEqual((info.embedding_width, info.compute_dtype), (1280, "fp32"))
        rows = {mode.name: mode.rows for mode in info.modes}
        self.assertEqual(rows, {"tiny": 73, "base": 273, "gundam": 273})
        self.assertIs(self.client.health(), Health.SERVING)

    def test_refusals(self):
        with self.assertRaises(InvalidRequestError) as caught:
            self.client.encode(b"this is no image", request_id="python-7")
        self.assertEqual(caught.exception.request_id, "python-7")
        with self.assertRaises(InvalidRequestError):  # a mode that is not served
            self.client.encode(DATA / "images" / "small_page.png", mode="large")
        with self.assertRaises(LimitError) as caught:
            self.client.encode(bytes(40 << 20))
        self.assertIn("--max-image-bytes", caught.exception.details)

    def test_many(self):
        widths = {"exif_1.jpg": 96, "small_page.png": 500, "exif_6.jpg": 64}
        paths = [DATA / "images" / name for name in [*widths, "exif_1.jpg"]]
        bad = [b"no image", bytes(40 << 20), bytes(150 << 20)]  # the last: not even read
        results = list(self.client.encode_many([*bad, *paths], mode="tiny", concurrency=3))
        self.assertEqual([r.ok for r in results], [False] * 3 + [True] * 4)
        for result in results[1:3]:
            self.assertIsInstance(result.error, LimitError)
        del results[:3]
        np.testing.assert_array_equal(results[0].unwrap().stored, results[3].unwrap().stored)
        got = [r.unwrap().geometry.image_width for r in results[:3]]
        self.assertEqual(got, list(widths.values()))


class ProgramTest(unittest.TestCase):
    """python -m deepencoder_client against the real server, compared with the C++ program."""

    def test_json_is_that_of_the_cpp_program(self):
        server = real_server.shared()
        arguments = ["encode", str(DATA / "images" / "small_page.png"), "--mode", "tiny", "--json",
                     "--server", server.address]  # fmt: skip
        stages = {field.name for field in dataclasses.fields(Timings)}
        answers = []
        for program in ([sys.executable, "-m", "deepencoder_client"], [server.cli]):
            done = subprocess.run([*program, *arguments], check=True, capture_output=True)
            answer = json.loads(done.stdout)
            self.assertEqual(set(answer.pop("seconds")), stages)
            answers.append(answer)
        self.assertEqual(*answers)
