"""Placeholders: the package's formula and the service's code against vLLM's processor and prompt update."""

import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

import support
from PIL import Image
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRProcessingInfo
from vllm.transformers_utils.processors import deepseek_ocr

from deepencoder_vllm import geometry, prompt_rows, tile_grid


def sizes(count, longest, seed=20):
    """Sizes of pages, strips and stamps, with what lies at a rule's edge.

    Not of strips so thin that Pillow refuses a view without pixels.
    """
    chosen = random.Random(seed)
    edges = [(640, 640), (641, 640), (640, 641), (641, 1), (1, 641), (1, 1), (2500, 3000), (800, 800),
             (1654, 2339), (1357, 1357), (1358, 1358)]
    while len(edges) < count:
        size = (chosen.randint(1, longest), chosen.randint(1, longest))
        if min(size) * 1024 >= max(size):
            edges.append(size)
    return edges


class CountsTest(unittest.TestCase):
    def test_constants(self):
        self.assertEqual(
            (deepseek_ocr.BASE_SIZE, deepseek_ocr.IMAGE_SIZE, deepseek_ocr.CROP_MODE,
             deepseek_ocr.MAX_CROPS),
            (geometry.BASE_SIDE, geometry.TILE_SIDE, True, geometry.VLLM_MAX_TILES))

    def test_prompt_update_of_5000_sizes(self):
        info = object.__new__(DeepseekOCRProcessingInfo)  # the method reads nothing of it
        for width, height in sizes(5000, longest=8000):
            self.assertEqual(
                prompt_rows(width, height),
                info.get_num_image_tokens(image_width=width, image_height=height),
                (width, height))

    def test_processor_of_200_sizes(self):
        processor = support.processor()
        seen = set()
        for width, height in sizes(200, longest=1800):
            output = processor(prompt="<image>", images=[Image.new("L", (width, height)).convert("RGB")])
            self.assertEqual(output["num_image_tokens"].tolist(), [prompt_rows(width, height)],
                             (width, height))
            self.assertEqual(tuple(output["images_spatial_crop"][0].tolist()),
                             tile_grid(width, height), (width, height))
            seen.add(tile_grid(width, height))
        self.assertGreater(len(seen), 8)

    def test_the_service_lays_out_as_many_rows(self):
        """`deepencoder view` plans views and rows by the server's own code."""
        program = Path(os.environ["DEEPENCODER_BIN"]) / "deepencoder"
        if not program.is_file():
            self.skipTest(f"{program} is not built")
        info = object.__new__(DeepseekOCRProcessingInfo)
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder, "image.png")
            for width, height in sizes(200, longest=1800):
                Image.new("L", (width, height)).save(image)
                layout = json.loads(subprocess.run(
                    [program, "view", image, "--json"], check=True, capture_output=True).stdout)
                self.assertEqual(
                    layout["rows"],
                    info.get_num_image_tokens(image_width=width, image_height=height),
                    (width, height))
                self.assertEqual((layout["tile_columns"], layout["tile_rows"]),
                                 tile_grid(width, height), (width, height))


if __name__ == "__main__":
    unittest.main()
