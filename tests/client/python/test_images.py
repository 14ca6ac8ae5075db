"""Images of every kind become what is sent."""

import io
import tempfile
import unittest
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageOps
from deepencoder_client import InputError, images, pdf_pages, protocol
from deepencoder_client.options import check_options
from deepencoder_client.wire import build_request

from real_server import DATA

PAGE = DATA / "images" / "small_page.png"


def pdf_file(folder: str, pages: int) -> str:
    """A PDF of one colour a page, 72 x 36 points."""
    name = str(Path(folder) / "scan.pdf")
    made = [PIL.Image.new("RGB", (72, 36), (40 * page, 0, 200)) for page in range(pages)]
    made[0].save(name, save_all=True, append_images=made[1:], resolution=72)
    return name


class LoadTest(unittest.TestCase):
    def test_path_and_bytes_are_sent_as_they_are(self):
        for source in (PAGE, str(PAGE), PAGE.read_bytes()):
            payload = images.load(source)
            self.assertEqual(payload, images.Payload(PAGE.read_bytes()))

    def test_missing_file_is_an_os_error(self):
        with self.assertRaises(FileNotFoundError):
            images.load("no-such-file.png")

    def test_array(self):
        array = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        self.assertEqual(images.load(array), images.Payload(bytes(range(18)), 3, 2))
        turned = images.load(array.transpose(1, 0, 2))  # not contiguous
        self.assertEqual(turned.data[3:6], bytes([9, 10, 11]))
        gray = images.load(np.array([[7, 9]], np.uint8))
        self.assertEqual(gray, images.Payload(bytes([7, 7, 7, 9, 9, 9]), 2, 1))

    def test_arrays_that_are_no_images(self):
        for array in (
            np.zeros((2, 2, 3), np.float32),
            np.zeros((2, 2, 4), np.uint8),
            np.zeros((3, 2, 2, 3), np.uint8),
            np.zeros((0, 2, 3), np.uint8),
        ):
            with self.subTest(array.shape), self.assertRaises(InputError):
                images.load(array)

    def test_other_things_are_refused_with_a_hint(self):
        with self.assertRaisesRegex(InputError, "int is not an image"):
            images.load(5)
        with self.assertRaisesRegex(InputError, "empty"):
            images.load(b"")
        with self.assertRaisesRegex(InputError, "pdf_pages"):
            images.load(b"%PDF-1.7 ...")

    def test_pil_image_is_upright_rgb(self):
        plain = PIL.Image.open(DATA / "images" / "exif_1.jpg")
        self.assertEqual(images.load(plain).data, plain.convert("RGB").tobytes())
        turned = PIL.Image.open(DATA / "images" / "exif_6.jpg")
        payload = images.load(turned)
        self.assertEqual((payload.width, payload.height), (turned.height, turned.width))
        self.assertEqual(payload.data, PIL.ImageOps.exif_transpose(turned).tobytes())

    def test_pil_image_with_alpha_or_16_bits_keeps_them(self):
        for name in ("rgba.png", "la.png", "palette_trns.png", "gray16.png"):
            with self.subTest(name):
                image = PIL.Image.open(DATA / "images" / name)
                payload = images.load(image)
                self.assertEqual(payload.width, 0)
                again = PIL.Image.open(io.BytesIO(payload.data))
                np.testing.assert_array_equal(np.asarray(again), np.asarray(image))

    def test_pdf_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = pdf_pages(pdf_file(folder, 3), dpi=144)
            self.assertEqual([page.number for page in pages], [1, 2, 3])
            self.assertIn("scan.pdf, page 2", str(pages[1]))
            payload = images.load(pages[2])
            self.assertEqual((payload.width, payload.height), (144, 72))
            middle = np.frombuffer(payload.data, np.uint8).reshape(72, 144, 3)[36, 72]
            np.testing.assert_allclose(middle, (80, 0, 200), atol=6)  # JPEG inside
            some = pdf_pages(Path(folder, "scan.pdf").read_bytes(), pages=[3, 1])
            self.assertEqual([page.number for page in some], [3, 1])
            with self.assertRaisesRegex(InputError, "no page 4"):
                pdf_pages(Path(folder, "scan.pdf"), pages=[4])

    def test_what_is_no_pdf(self):
        with self.assertRaisesRegex(InputError, "cannot be opened as a PDF"):
            pdf_pages(b"not a PDF")


class RequestTest(unittest.TestCase):
    def test_requests_are_those_of_protobuf(self):
        options = {"mode": "base", "max_tiles": 9, "dtype": "fp16", "alpha": "white",
                   "gray16": "saturate"}  # fmt: skip
        check_options(options)
        for size in (1, 127, 128, 300_000):
            raw = images.Payload(b"x" * 3 * size, size, 1)
            message = protocol.EncodeImageRequest.FromString(build_request(raw, options))
            self.assertEqual((message.raw.width, message.raw.height), (size, 1))
            self.assertEqual(message.raw.rgb, raw.data)
            self.assertEqual(message.max_tiles, 9)
            for option, enum in (("mode", "Mode"), ("dtype", "DType"), ("alpha", "AlphaPolicy"),
                                 ("gray16", "Gray16Policy")):  # fmt: skip
                self.assertEqual(getattr(message, option),
                                 protocol.number_of(enum, options[option]))  # fmt: skip
            file = images.Payload(b"y" * size)
            message = protocol.EncodeImageRequest.FromString(build_request(file, {}))
            self.assertEqual(message.encoded, file.data)
            self.assertFalse(message.HasField("max_tiles"))

    def test_wrong_options(self):
        with self.assertRaisesRegex(ValueError, "tiny, small, base, large, gundam"):
            check_options({"mode": "huge"})
        with self.assertRaisesRegex(TypeError, "colour"):
            check_options({"colour": True})
        with self.assertRaisesRegex(ValueError, "max_tiles"):
            check_options({"max_tiles": 0})
