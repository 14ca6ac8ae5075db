"""Normalised views back to pixels, and views' rows into an image's rows."""

import unittest

import numpy as np

from deepencoder_vllm.geometry import TileGrid, grid_rows
from deepencoder_vllm.views import assemble, bfloat16_bits, pixels_of_view

WIDTH = 8


def normalise(pixels):
    """As the processor: ToTensor, Normalize(0.5, 0.5), channels first."""
    values = pixels.astype(np.float32) / np.float32(255)
    return ((values - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1)


class PixelsTest(unittest.TestCase):
    # Every level, in a different order in each channel.
    PIXELS = np.stack([np.random.default_rng(seed).permutation(256).reshape(16, 16)
                       for seed in range(3)], axis=-1).astype(np.uint8)

    def test_every_level_comes_back_in_every_type(self):
        values = normalise(self.PIXELS)
        for dtype, stored in {
            "bf16": bfloat16_bits(values), "fp16": values.astype(np.float16), "fp32": values,
        }.items():
            pixels = pixels_of_view(stored, dtype)
            np.testing.assert_array_equal(pixels, self.PIXELS, dtype)
            self.assertTrue(pixels.flags.c_contiguous)

    def test_refuses_what_was_not_normalised_so(self):
        values = normalise(self.PIXELS)
        for dtype, stored in {
            "bf16": bfloat16_bits(values * np.float32(1.1)),
            "fp16": (values + np.float32(0.003)).astype(np.float16),
            "fp32": values + np.float32(0.003),
        }.items():
            with self.assertRaisesRegex(ValueError, "no normalised"):
                pixels_of_view(stored, dtype)
        with self.assertRaisesRegex(ValueError, "no normalised"):
            pixels_of_view(np.full((3, 2, 2), np.nan, np.float32), "fp32")

    def test_rounds_to_bfloat16_to_nearest_even(self):
        values = np.array([1.0, 1.00390625, 1.01171875, -1.00390625, 1.005], np.float32)
        self.assertEqual([hex(bits) for bits in bfloat16_bits(values)],
                         ["0x3f80", "0x3f80", "0x3f82", "0xbf80", "0x3f81"])


class AssembleTest(unittest.TestCase):
    """Rows are told apart by what they are: (view, y, x), a newline or the separator."""

    @staticmethod
    def encode(view, side):
        cells = [[(view, y, x) if x < side else "newline" for x in range(side + 1)]
                 for y in range(side)]
        return [cell for row in cells for cell in row] + ["separator"]

    @staticmethod
    def as_array(names, codes):
        values = [codes.setdefault(name, len(codes)) for name in names]
        return np.repeat(np.array(values, np.uint16)[:, None], WIDTH, axis=1)

    def test_lays_tiles_into_a_mosaic_before_the_global_view(self):
        for grid in (TileGrid(2, 1), TileGrid(1, 3), TileGrid(3, 2), TileGrid(2, 3)):
            codes = {}
            base = self.as_array(self.encode("base", 16), codes)
            tiles = [self.as_array(self.encode(tile, 10), codes)
                     for tile in range(grid.columns * grid.rows)]
            expected = []
            for y in range(10 * grid.rows):
                expected += [((y // 10) * grid.columns + x // 10, y % 10, x % 10)
                             for x in range(10 * grid.columns)] + ["newline"]
            rows = assemble(base, tiles, grid)
            self.assertEqual(rows.shape, (grid_rows(grid), WIDTH))
            np.testing.assert_array_equal(rows, self.as_array(expected + self.encode("base", 16), codes))

    def test_one_view_stays_as_it_is(self):
        base = np.zeros((273, WIDTH), np.uint16)
        self.assertIs(assemble(base, [], TileGrid(1, 1)), base)

    def test_refuses_rows_of_another_mode(self):
        with self.assertRaisesRegex(ValueError, "another mode.*421"):
            assemble(np.zeros((421, WIDTH)), [], TileGrid(1, 1))
        with self.assertRaisesRegex(ValueError, "another mode.*73"):
            assemble(np.zeros((273, WIDTH)), [np.zeros((73, WIDTH))] * 2, TileGrid(2, 1))


if __name__ == "__main__":
    unittest.main()
