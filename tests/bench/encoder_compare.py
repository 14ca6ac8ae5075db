#!/usr/bin/env python3
"""Two builds of the CUDA backend against each other: the whole encoder, in one process, in alternating order.

    encoder_compare.py OURS.so PEER.so [--cases 1024:1 1024:8 640:32] [--out encoder_compare.json]

Device time of an encode with its graph, from pixels in device memory to reply rows in device memory. Medians over rounds.
Needs a GPU and numpy.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import cuda_backend  # noqa: E402
import synthetic_checkpoint  # noqa: E402


class Side:
    def __init__(self, device, side, batch):
        rng = np.random.default_rng(1)
        self.side, self.slot = side, device.slot()
        self.views = [device.view(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(batch)]

    def milliseconds(self):
        self.rows = self.slot.encode(self.side, self.views, "bf16")
        return self.slot.stats.compute_seconds * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ours")
    parser.add_argument("peer")
    parser.add_argument("--cases", nargs="+", default=["1024:1", "1024:8", "640:32"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out")
    options = parser.parse_args()
    cases = [tuple(map(int, case.split(":"))) for case in options.cases]
    tensors = synthetic_checkpoint.make()
    devices = [cuda_backend.Backend(tensors, sides=sorted({s for s, _ in cases}), buckets=sorted({b for _, b in cases}),
                                    api=cuda_backend.load(path)) for path in (options.ours, options.peer)]
    results = []
    for side, batch in cases:
        sides = [Side(device, side, batch) for device in devices]
        samples = ([], [])
        for round_ in range(options.rounds + 1):
            for i in ((0, 1), (1, 0))[round_ % 2]:
                times = [sides[i].milliseconds() for _ in range(options.repeats)]
                if round_:  # the first one warms up
                    samples[i].append(statistics.median(times))
        ours, peer = map(statistics.median, samples)
        same = all(np.array_equal(a, b) for a, b in zip(sides[0].rows, sides[1].rows))
        results.append({
            "name": f"encoder {side} batch {batch}, two builds", "unit": "ms", "ours": round(ours, 4), "peer": round(peer, 4),
            "peer_name": options.peer, "ratio": round(ours / peer, 4), "higher_is_better": False, "equal_bits": same,
            "spread_ms": [[round(min(s), 4), round(max(s), 4)] for s in samples],
            "commit": os.environ.get("DEEPENCODER_COMMIT", ""), "date": datetime.date.today().isoformat(),
            "command": "python3 tests/bench/encoder_compare.py " + " ".join(sys.argv[1:])})
        print(f"{side}:{batch}  ours {ours:.4f} ms  peer {peer:.4f} ms  ratio {ours / peer:.4f}  equal bits {same}", flush=True)
        if options.out:
            pathlib.Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
