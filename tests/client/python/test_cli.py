"""python -m deepencoder_client: files, texts, exit statuses."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import grpc
import numpy as np
from deepencoder_client import cli

from fake_server import FakeServer, answer, fail
from real_server import DATA, read_safetensors
from test_images import pdf_file

PAGE = str(DATA / "images" / "small_page.png")
JPEG = str(DATA / "images" / "exif_1.jpg")


def run(*words: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


class CliTest(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer().__enter__()
        self.addCleanup(self.server.__exit__)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.at = ["--server", self.server.address]

    def test_encode_images_and_pdf_pages(self):
        pdf, out = pdf_file(self.folder, 2), Path(self.folder, "new", "out")
        status, text, errors = run("encode", PAGE, pdf, "--out", str(out), "--mode", "base",
                                   "--dpi", "72", *self.at)  # fmt: skip
        self.assertEqual((status, errors), (0, ""))
        names = ["scan-0001.safetensors", "scan-0002.safetensors", "small_page.safetensors"]
        self.assertEqual(sorted(path.name for path in out.iterdir()), names)
        rows = read_safetensors(out / "scan-0002.safetensors")["embeddings"]
        self.assertEqual(rows[0, 0], 72)  # a page's width
        self.assertIn(f"{PAGE}  fp32 [2, 8]", text)
        self.assertIn(f"written to {out / names[1]}", text)
        self.assertEqual([request.mode for request in self.server.requests], [3, 3, 3])

    def test_names_of_pages_whatever_the_case(self):
        pdf = Path(pdf_file(self.folder, 2)).rename(Path(self.folder, "A.pdf-b.PDF"))
        out = Path(self.folder, "out")
        status, _, errors = run("encode", str(pdf), "--out", str(out), *self.at)
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["A.pdf-b-0001.safetensors", "A.pdf-b-0002.safetensors"])  # fmt: skip

    def test_npy_and_json(self):
        status, text, _ = run("encode", JPEG, "no-such.png", "--out", self.folder, "--format",
                              "npy", "--json", *self.at)  # fmt: skip
        self.assertEqual(status, 1)
        good, bad = map(json.loads, text.splitlines())
        self.assertEqual(np.load(good["file"])[0, 0], os.path.getsize(JPEG))
        self.assertEqual(
            (good["ok"], good["shape"], good["seconds"]["total"]), (True, [2, 8], 0.25)
        )
        self.assertEqual((bad["image"], bad["ok"], bad["code"]),
                         ("no-such.png", False, "FileNotFoundError"))  # fmt: skip

    def test_a_broken_image_does_not_stop_the_others(self):
        def behaviour(request, context):
            if request.encoded[:3] == b"\xff\xd8\xff":
                fail(context, grpc.StatusCode.INVALID_ARGUMENT, "the file ends early")
            return answer(request)

        self.server.behaviour = behaviour
        status, text, errors = run("encode", JPEG, PAGE, *self.at)
        self.assertEqual(status, 1)
        self.assertIn(PAGE, text)
        self.assertIn(f"{JPEG}: INVALID_ARGUMENT: the file ends early", errors)

    def test_wrong_usage(self):
        for words in (["encode"], ["encode", PAGE, "--mode", "huge"], [], ["decode"],
                      ["encode", PAGE, PAGE, "--out", self.folder],
                      ["encode", PAGE, "--concurrency", "0"],
                      ["info", "--client-key", "x.pem"]):  # fmt: skip
            with self.subTest(words):
                status, _, errors = run(*words, *(self.at if words else []))
                self.assertEqual(status, 2)
                self.assertNotEqual(errors, "")
        self.assertEqual(self.server.calls, 0)

    def test_no_server(self):
        self.server.__exit__()
        for words in (["info"], ["health"], ["encode", PAGE]):
            status, _, errors = run(*words, *self.at)
            self.assertEqual(status, 3)
            self.assertIn("UNAVAILABLE", errors)

    def test_no_answer_in_time(self):
        self.server.behaviour = lambda request, context: fail(
            context, grpc.StatusCode.DEADLINE_EXCEEDED, "too late"
        )
        status, _, errors = run("encode", PAGE, *self.at)
        self.assertEqual(status, 3)
        self.assertIn("too late", errors)

    def test_what_is_no_pdf(self):
        path = Path(self.folder, "scan.pdf")
        path.write_text("no")
        status, _, errors = run("encode", str(path), *self.at)
        self.assertEqual(status, 1)
        self.assertIn("cannot be opened as a PDF", errors)

    def test_info_and_health(self):
        status, text, _ = run("info", *self.at)
        self.assertEqual(status, 0)
        self.assertIn("fake", text)
        status, text, _ = run("info", "--json", *self.at)
        self.assertEqual(json.loads(text)["embedding_width"], 8)
        self.assertEqual(run("health", *self.at)[:2], (0, "SERVING\n"))
        self.server.health = 2
        self.assertEqual(run("health", *self.at)[:2], (1, "NOT_SERVING\n"))

    def test_token(self):
        file = Path(self.folder, "token")
        file.write_text("sesame\n")
        run("encode", PAGE, "--token-file", str(file), *self.at)
        with mock.patch.dict(os.environ, {"DEEPENCODER_TOKEN": "other"}):
            run("encode", PAGE, *self.at)
        sent = [metadata["authorization"] for metadata in self.server.metadata]
        self.assertEqual(sent, ["Bearer sesame", "Bearer other"])
