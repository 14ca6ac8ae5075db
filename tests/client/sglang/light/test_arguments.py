"""Arguments without SGLang and without PyTorch. That SGLang takes them: wheel/test_items.py."""

import sys
import types
import unittest
from unittest import mock

import numpy as np

from deepencoder_sglang import generate_arguments, image_item

# The one function of PyTorch that the package calls.
TORCH = types.SimpleNamespace(cat=np.concatenate)


def rows(count, width=8, dtype=np.float32):
    return np.ones((count, width), dtype)


@mock.patch.dict(sys.modules, torch=TORCH)
class ArgumentsTest(unittest.TestCase):
    def test_each_row_has_a_placeholder(self):
        arguments = generate_arguments([[0], rows(3), [5], rows(2), [6, 7]], image_token=9)
        self.assertEqual(arguments["input_ids"], [0, 9, 9, 9, 5, 9, 9, 6, 7])
        (item,) = arguments["image_data"]
        self.assertEqual(item["format"], "processor_output")
        self.assertEqual(item["precomputed_embeddings"].shape, (5, 8))

    def test_refuses_what_sglang_would_misread(self):
        for parts, message in (
            ([[0], rows(3), rows(2)], "no text between"),
            ([[0, 9], rows(3)], "placeholder of its own"),
            ([[0]], "no images"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                generate_arguments(parts, image_token=9)

    def test_refuses_rows_that_differ_in_kind(self):
        for other in (rows(2, width=4), rows(2, dtype=np.float16), np.ones(8, np.float32)):
            with self.assertRaisesRegex(ValueError, "beside others"):
                image_item([rows(3), other])


if __name__ == "__main__":
    unittest.main()
