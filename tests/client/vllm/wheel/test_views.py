"""Pixels out of vLLM's processed views against the views that Pillow makes."""

import unittest

import numpy as np
import support
import torch
from PIL import ImageOps
from vllm.transformers_utils.processors.deepseek_ocr import dynamic_preprocess

from deepencoder_vllm.connector import UnusableItemError, item_views


class ViewsTest(unittest.TestCase):
    def test_views_are_those_of_the_processor_before_it_normalises(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for size in ((300, 500), (1300, 900), (700, 2000)):
                image = support.picture(*size)
                (feature,), _ = support.features([image], dtype)
                base, tiles, grid = item_views(feature)
                expected = ImageOps.pad(image, (1024, 1024), color=(127, 127, 127))
                np.testing.assert_array_equal(base, np.asarray(expected))
                if max(size) <= 640:
                    self.assertEqual((tiles, grid), ([], (1, 1)))
                    continue
                cuts, ratio = dynamic_preprocess(image)
                self.assertEqual(grid, ratio)
                self.assertEqual(len(tiles), len(cuts))
                for tile, cut in zip(tiles, cuts):
                    np.testing.assert_array_equal(tile, np.asarray(cut))

    def test_each_item_of_a_request_has_its_own_views(self):
        images = [support.picture(1300, 900, 1), support.picture(200, 200, 2), support.picture(700, 2000, 3)]
        specs, _ = support.features(images)
        for image, feature in zip(images, specs):
            (alone,), _ = support.features([image])
            for mine, own in zip(item_views(feature)[1], item_views(alone)[1], strict=True):
                np.testing.assert_array_equal(mine, own)

    def test_refuses_items_without_pixels_and_of_other_modes(self):
        (feature,), _ = support.features([support.picture(700, 700)])
        feature.data["pixel_values"].data = torch.zeros(3, 512, 512)
        with self.assertRaisesRegex(UnusableItemError, "not gundam"):
            item_views(feature)
        del feature.data["pixel_values"]
        with self.assertRaisesRegex(UnusableItemError, "mm_processor_cache_type=shm"):
            item_views(feature)
        feature.data = None
        with self.assertRaisesRegex(UnusableItemError, "mm_processor_cache_type=shm"):
            item_views(feature)


if __name__ == "__main__":
    unittest.main()
