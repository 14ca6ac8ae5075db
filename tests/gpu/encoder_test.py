#!/usr/bin/env python3
"""The CUDA encoder against the conformance values, through the backend's C table.

Environment: DEEPENCODER_CUDA_LIBRARY (the library), DEEPENCODER_CONFORMANCE_DIR (the full conformance values; without
it the mini ones of tests/data are used). Needs a GPU, numpy and Pillow.
"""
import functools
import json
import os
import pathlib
import sys
import threading
import unittest

import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cuda_backend  # noqa: E402
import synthetic_checkpoint  # noqa: E402
from preprocessing import jobs_of, load_rgb  # noqa: E402

DATA = pathlib.Path(__file__).parents[1] / "data"
CONFORMANCE = pathlib.Path(os.environ.get("DEEPENCODER_CONFORMANCE_DIR", DATA))
VALUES = CONFORMANCE / "encoder"
IMAGES = DATA / "images"
DEPTHS = {"mini": (3, 2), "full": (12, 24)}
SIDES = {"tiny": 512, "small": 640, "base": 1024, "large": 1280}


@functools.lru_cache(maxsize=1)
def tensors(size):
    return synthetic_checkpoint.make(*DEPTHS[size])


@functools.lru_cache(maxsize=1)
def backend(size, compute, graphs):
    depth, layers = DEPTHS[size]
    return cuda_backend.Backend(tensors(size), depth, layers, compute, graphs=graphs, buckets=(1, 2, 4, 8))


def read_safetensors(path):
    blob = path.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    types = {"F32": np.float32, "F16": np.float16}
    out = {}
    for name, entry in json.loads(blob[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            out[name] = np.frombuffer(blob[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return out


def relative_error(got, want):
    assert np.isfinite(got).all(), "not finite"
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64)))


def bf16_to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def cases(size):
    index = VALUES / f"{size}.json"
    return [case for case in json.loads(index.read_text()) if "tokens" in case] if index.exists() else []


def view_of(case):
    return np.asarray(Image.open(VALUES / (case["file"] + ".png")).convert("RGB"))


class Conformance(unittest.TestCase):
    """Error at most the reference's own in the same type, at every grid there is a value for."""

    def check(self, size, compute):
        found = cases(size)
        if not found:
            self.skipTest(f"no {size} values in {VALUES}")
        slot = backend(size, compute, True).slot()
        for case in found:
            want = read_safetensors(VALUES / (case["file"] + ".safetensors"))["tokens"]
            view = backend(size, compute, True).view(view_of(case))
            slot.poison()
            for dtype in ("fp32", compute):
                rows, = slot.encode(SIDES[case["mode"]], [view], dtype)
                if dtype == "bf16":
                    rows = bf16_to_float(rows)
                error = relative_error(rows, want)
                bar = case["error_of_reference"]["tokens"][compute]
                print(f"  {case['file']:28} {compute} reply {dtype}: {error:.3e} (bar {bar:.3e})")
                self.assertLessEqual(error, bar, case["file"])

    def test_mini_bf16(self):
        self.check("mini", "bf16")

    def test_mini_fp16(self):
        self.check("mini", "fp16")

    def test_full_bf16(self):
        self.check("full", "bf16")

    def test_full_fp16(self):
        self.check("full", "fp16")

    def test_full_sequence(self):
        """The tiles of a page and its global view, each to its place: every row of the reply that a view makes."""
        path = VALUES / "full.sequence.gundam.page_rgb.safetensors"
        if not path.exists():
            self.skipTest(f"no {path}")
        want = read_safetensors(path)["sequence"].astype(np.float32)
        device = backend("full", "bf16", True)
        rgb = load_rgb(IMAGES / "page_rgb.jpg")
        jobs, (columns, rows) = jobs_of(rgb.shape[1], rgb.shape[0], "gundam")
        views, slot = device.views(rgb, jobs), device.slot()
        count = columns * rows
        tiles = slot.encode(640, [(views, i) for i in range(count)])
        whole, = slot.encode(1024, [(views, count)])
        mosaic = np.stack(tiles).reshape(rows, columns, 10, 10, 1280).transpose(0, 2, 1, 3, 4)
        local = want[:10 * rows * (10 * columns + 1)].reshape(10 * rows, 10 * columns + 1, 1280)[:, :-1]
        globe = want[10 * rows * (10 * columns + 1):-1].reshape(16, 17, 1280)[:, :-1]
        self.assertLessEqual(relative_error(mosaic.reshape(local.shape), local), 1.25e-2)
        self.assertLessEqual(relative_error(whole.reshape(globe.shape), globe), 1.25e-2)


class Views(unittest.TestCase):
    def test_equal_to_pillow(self):
        import hashlib
        device = backend("mini", "bf16", True)
        entries = json.loads((DATA / "views.json").read_text())
        checked = 0
        for entry in entries:
            rgb = load_rgb(IMAGES / entry["image"])
            if rgb is None:
                continue
            self.assertEqual([rgb.shape[1], rgb.shape[0]], entry["size"], entry["image"])
            jobs, grid = jobs_of(*entry["size"], entry["mode"])
            self.assertEqual(list(grid), entry["tiles"], entry["image"])
            views = device.views(rgb, jobs)
            hashes = [hashlib.sha256(views.read(i).tobytes()).hexdigest() for i in range(len(views))]
            self.assertEqual(hashes, entry["tile_sha256"] + [entry["global_sha256"]],
                             f"{entry['image']} in mode {entry['mode']}")
            checked += 1
        print(f"  {checked} of {len(entries)} entries")
        self.assertGreaterEqual(checked, 200)


class Invariance(unittest.TestCase):
    """An image is encoded to the same bits alone and in company, with and without graphs, in any order."""

    def setUp(self):
        self.device = backend("mini", "bf16", True)
        rng = np.random.default_rng(5)
        self.views = {side: [self.device.view(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(8)]
                      for side in SIDES.values()}

    def alone(self, slot, side, i):
        rows, = slot.encode(side, [self.views[side][i]])
        return rows

    def check(self, got, want, slot, side, views, i, reference):
        """Row for row equal; if not, says at which operation image `i` of this batch parts from `reference`, a slot and
        the image's view there, alone."""
        if not np.array_equal(got, want):
            other, view = reference
            bucket = slot.stats.bucket
            steps = zip(other.trace(side, [view], 1), slot.trace(side, views, bucket))
            parts = next((f"{name} ({mine or 'no choice of algorithm'}; alone {theirs or 'none'})"
                          for (name, theirs, alone), (_, mine, company) in steps if alone[0] != company[i]),
                         "no operation when traced: graphs or a race")
            self.fail(f"side {side}, image {i} in a batch of {len(views)} (bucket {bucket}) parts at {parts}")

    def test_company(self):
        slot = self.device.slot()
        for side, views in self.views.items():
            want = [self.alone(slot, side, i) for i in range(8)]
            for count in (2, 3, 5, 8):
                slot.poison()
                together = slot.encode(side, views[:count])
                self.assertEqual(slot.stats.bucket, {2: 2, 3: 4, 5: 8, 8: 8}[count])
                self.assertEqual(slot.stats.graph, 1)
                for i, rows in enumerate(together):
                    self.check(rows, want[i], slot, side, views[:count], i, (slot, views[i]))

    def test_small_large_small(self):
        slot = self.device.slot()
        want = {side: self.alone(slot, side, 0) for side in self.views}
        for side, count in [(512, 1), (1280, 8), (512, 2), (1024, 3), (640, 8), (512, 1), (1280, 1), (640, 1)]:
            slot.poison()
            rows = slot.encode(side, self.views[side][:count])
            self.check(rows[0], want[side], slot, side, self.views[side][:count], 0, (slot, self.views[side][0]))

    def test_graphs_and_slots(self):
        slots = [self.device.slot() for _ in range(2)]
        eager = cuda_backend.Backend(tensors("mini"), *DEPTHS["mini"], "bf16", graphs=False, buckets=(1, 2, 4, 8))
        other = eager.slot()
        rng = np.random.default_rng(6)
        for side in self.views:
            rgb = rng.integers(0, 256, (side, side, 3), np.uint8)
            mine = [self.device.view(rgb)]
            want = slots[0].encode(side, mine)[0]
            self.assertTrue(np.array_equal(slots[1].encode(side, mine)[0], want))
            theirs = [eager.view(rgb)]
            rows, = other.encode(side, theirs)
            self.assertEqual(other.stats.graph, 0)
            self.check(rows, want, other, side, theirs, 0, (slots[0], mine[0]))
        other.close()
        eager.close()

    def test_slots_beside_each_other(self):
        """Large batches of two slots follow each other on the device, small ones run beside them."""
        slots = [self.device.slot(), self.device.slot()]
        want = {side: [self.alone(slots[0], side, i) for i in range(8)] for side in self.views}
        counts, wrong, ended = (8, 1, 8, 4, 2), [], []

        def work(thread):
            for number in range(30):
                count = counts[(number + thread) % len(counts)]
                for side in self.views:
                    rows = slots[thread].encode(side, self.views[side][:count])
                    wrong.extend((thread, number, side, i) for i in range(count) if not np.array_equal(rows[i], want[side][i]))
            ended.append(thread)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(ended), 2)  # neither by an exception
        for slot in slots:
            slot.close()

    def test_next_batch_beside_the_rows_of_the_last(self):
        slot = self.device.slot()
        batches = [(side, first, count) for side in self.views for first, count in ((0, 4), (4, 1), (2, 3), (5, 2))] * 3
        want = {side: [self.alone(slot, side, i) for i in range(8)] for side in self.views}
        turn, results = threading.Lock(), {}

        def work(thread):
            for number in range(thread, len(batches), 2):
                side, first, count = batches[number]
                turn.acquire()
                results[number] = slot.encode_ahead(side, self.views[side][first:first + count], turn.release)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, (side, first, count) in enumerate(batches):
            for i, rows in enumerate(results[number]):
                self.assertTrue(np.array_equal(rows, want[side][first + i]), f"batch {number}, image {i}")


class Boundary(unittest.TestCase):
    """Every wrong argument is an error with a sentence, and the slot works on."""

    def setUp(self):
        self.device = backend("mini", "bf16", True)
        self.slot = self.device.slot()
        self.view = self.device.view(np.full((512, 512, 3), 200, np.uint8))

    def refuses(self, pattern, function, *arguments, **named):
        with self.assertRaisesRegex(cuda_backend.BackendError, "INVALID_ARGUMENT: .*" + pattern):
            function(*arguments, **named)
        self.slot.encode(512, [self.view])

    def test_wrong_side(self):
        self.refuses("side 512 in a batch of side 640", self.slot.encode, 640, [self.view])
        self.refuses("no plan for side 768", self.slot.encode, 768, [self.view])

    def test_wrong_counts(self):
        self.refuses("number of items", self.slot.encode, 512, [])
        self.refuses("number of items", self.slot.encode, 512, [self.view] * 9)
        self.refuses("view", self.slot.encode, 512, [(self.view[0], 1)])

    def test_wrong_image(self):
        job = cuda_backend.ResizeJob
        rgb = np.zeros((8, 8, 3), np.uint8)
        self.refuses("resize jobs", self.device.views, rgb, [])
        self.refuses("resize jobs", self.device.views, rgb, [job(8, 8, 16, 1, 1, 0, 0)] * 3)
        self.refuses("view side", self.device.views, rgb, [job(8, 8, 0, 1, 1, 0, 0)])
        self.refuses("width of a resize job", self.device.views, rgb, [job(0, 8, 16, 1, 1, 0, 0)])

    def test_wrong_model(self):
        few = dict(list(tensors("mini").items())[:-1])
        with self.assertRaisesRegex(cuda_backend.BackendError, "is missing"):
            cuda_backend.Backend({k: v for k, v in few.items() if "net_2" not in k}, 3, 2)
        for wrong in ({"compute": "fp32"}, {"sides": (512, 500)}, {"sides": (600,)}, {"buckets": ()}, {"buckets": (4, 2)}):
            with self.assertRaisesRegex(cuda_backend.BackendError, "INVALID_ARGUMENT"):
                cuda_backend.Backend(tensors("mini"), 3, 2, **wrong)

    def test_fp16_range(self):
        changed = dict(tensors("mini"))
        weight = changed["model.projector.layers.weight"].copy()
        weight[0, 0] = 0x7F00  # 1.7e38
        changed["model.projector.layers.weight"] = weight
        with self.assertRaisesRegex(cuda_backend.BackendError, "which fp16 cannot"):
            cuda_backend.Backend(changed, 3, 2, "fp16", sides=(512,), buckets=(1,))


class Memory(unittest.TestCase):
    def test_reported(self):
        device = backend("mini", "bf16", True)
        before = device.memory()
        slot = device.slot()
        during = device.memory()
        self.assertGreater(before["weights"][0], 1 << 20)
        self.assertGreater(during["workspace"][0], before["workspace"][0])
        slot.close()
        after = device.memory()
        self.assertEqual(after["workspace"][0], before["workspace"][0])
        self.assertGreaterEqual(after["workspace"][1], during["workspace"][0])

    def test_memory_of_views_is_used_again(self):
        device = backend("mini", "bf16", True)

        def make():
            device.views(np.zeros((100, 100, 3), np.uint8), jobs_of(100, 100, "base")[0])
            return device.memory()["views"][0]

        kept = make()
        self.assertGreaterEqual(kept, 3 * 1024 * 1024)
        # Far more than is kept, one after another.
        self.assertEqual({make() for _ in range(200)}, {kept})


if __name__ == "__main__":
    unittest.main(verbosity=2)
