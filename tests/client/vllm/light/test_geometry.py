"""Placeholder counts against the reference's, kept in tests/data/tile_grids.json and the model's documentation."""

import json
import os
import unittest
from pathlib import Path

from deepencoder_vllm import prompt_rows, tile_grid

DATA = Path(os.environ["DEEPENCODER_TEST_DATA"])


class GeometryTest(unittest.TestCase):
    def test_grids_of_the_reference(self):
        table = json.loads((DATA / "tile_grids.json").read_text())
        self.assertEqual(table["columns"], ["width", "height", "tiles_w_max6", "tiles_h_max6",
                                            "tiles_w_max9", "tiles_h_max9"])
        self.assertGreater(len(table["rows"]), 100)
        for width, height, *grids in table["rows"]:
            if max(width, height) <= 640:  # the table leaves out the rule for what fits into a tile
                grids = [1, 1, 1, 1]
            with self.subTest(width=width, height=height):
                self.assertEqual([*tile_grid(width, height, 6), *tile_grid(width, height, 9)], grids)

    def test_rows(self):
        for (width, height), rows in {
            (640, 640): 273, (1, 1): 273, (641, 640): 693, (2000, 1000): 483, (1000, 2000): 493,
            (1654, 2339): 903, (641, 1): 883, (1, 641): 933,
        }.items():
            self.assertEqual(prompt_rows(width, height), rows, (width, height))
        self.assertEqual(prompt_rows(2000, 2000, max_tiles=9), 1203)

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "no pixels"):
            tile_grid(0, 10)
        with self.assertRaisesRegex(ValueError, "less than 4"):
            tile_grid(700, 700, 3)


if __name__ == "__main__":
    unittest.main()
