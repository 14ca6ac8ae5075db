#!/usr/bin/env python3
"""The whole encoder on a GPU: ours against PyTorch, in one process, in alternating order.

    encoder_gpu.py --library libdeepencoder_cuda.so [--cases 1024:1 1024:8 640:32] [--out encoder_gpu.json]

Ours: the device time of EncoderSlot::Encode's graph replay, events around it (pixels in device memory to reply rows in device
memory). Peer: CUDA-graph replays of torch.compile'd tests/bench/torch_encoder.py in bf16, the better of its two kinds of
bias, input already normalised in device memory. Medians over rounds; a round times each side `--repeats` times.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/bench")]
import cuda_backend  # noqa: E402
import synthetic_checkpoint  # noqa: E402
import torch_encoder  # noqa: E402

GFLOP = {512: 248.5, 640: 367.0, 1024: 1105.0, 1280: 1922.0}  # without window padding; 1024 is the design's figure


class Ours:
    def __init__(self, device, side, batch):
        rng = np.random.default_rng(1)
        self.side, self.slot = side, device.slot()
        self.views = [device.view(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(batch)]

    def milliseconds(self):
        self.slot.encode(self.side, self.views, "bf16")
        return self.slot.stats.compute_seconds * 1e3


class Peer:
    def __init__(self, side, batch, attend):
        torch.manual_seed(0)
        torch._dynamo.reset()
        net = torch_encoder.DeepEncoder(side, attend).cuda().bfloat16().eval()
        run = torch.compile(net, dynamic=False)
        self.pixels = torch.randn(batch, 3, side, side, device="cuda", dtype=torch.bfloat16)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            run(self.pixels)
        torch.cuda.synchronize()
        self.peak = torch.cuda.max_memory_allocated() - before
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            run(self.pixels)
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def milliseconds(self):
        begin, end = self.events
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def product_tflops():
    """The rate an 8192 matrix product reaches here: the arithmetic ceiling."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(15):
        begin.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return 2 * 8192 ** 3 / statistics.median(times[5:]) / 1e9


def measure(sides, rounds, repeats):
    """{name: milliseconds} medians, the order of the sides turned round after each round."""
    samples = {name: [] for name in sides}
    for round_ in range(rounds + 1):
        order = list(sides.items())
        for name, side in order if round_ % 2 else reversed(order):
            times = [side.milliseconds() for _ in range(repeats)]
            if round_:  # the first one warms up
                samples[name].append(statistics.median(times))
    return {name: (statistics.median(times), min(times), max(times)) for name, times in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--cases", nargs="+", default=["1024:1", "1024:8", "640:32"])
    parser.add_argument("--ours-only", nargs="*", default=[], help="cases timed without a peer")
    parser.add_argument("--dense", nargs="*", default=[], help="cases in which the dense peer is timed too")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out")
    options = parser.parse_args()
    cases = {case: tuple(map(int, case.split(":"))) for case in options.cases + options.ours_only}
    api = cuda_backend.load(options.library)
    device = cuda_backend.Backend(synthetic_checkpoint.make(), sides=sorted({s for s, _ in cases.values()}),
                                  buckets=sorted({b for _, b in cases.values()}), api=api)
    rate = product_tflops()
    common = {"device": torch.cuda.get_device_name(),
              "commit": os.environ.get("DEEPENCODER_COMMIT") or subprocess.run(
                  ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
              "command": "python3 tests/bench/encoder_gpu.py " + " ".join(sys.argv[1:]),
              "date": datetime.date.today().isoformat()}
    results = []

    def emit(name, unit, ours, peer, peer_name, higher, **more):
        results.append({"name": name, "unit": unit, "ours": ours, "peer": peer, "peer_name": peer_name,
                        "ratio": round(ours / peer, 4), "higher_is_better": higher, **more, **common})
        if options.out:  # after every figure: a run that is cut short leaves what it has
            pathlib.Path(options.out).write_text(json.dumps(results, indent=1))
        print(f"{name:46} ours {ours:10.3f}  {peer_name} {peer:10.3f}  ratio {ours / peer:.3f} {unit}", flush=True)

    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]
    for case, (side, batch) in cases.items():
        sides = {"ours": Ours(device, side, batch)}
        with sdpa_kernel(order, set_priority=True), torch.inference_mode():
            if case in options.cases:
                sides["augmented"] = Peer(side, batch, torch_encoder.augmented)
            if case in options.dense:
                sides["dense"] = Peer(side, batch, torch_encoder.dense)
            times = measure(sides, options.rounds, options.repeats)
        ours = times["ours"][0]
        for peer in list(sides)[1:]:
            emit(f"encoder {side} batch {batch}", "images/s", round(batch / ours * 1e3, 1),
                 round(batch / times[peer][0] * 1e3, 1), f"PyTorch compile + CUDA graph, {peer} bias", True,
                 spread_ms={name: [round(t, 4) for t in time] for name, time in times.items()},
                 peer_peak_mib=round(sides[peer].peak / 2**20))
        floor = GFLOP[side] * batch / rate
        emit(f"encoder {side} batch {batch}, share of the arithmetic floor", "ms", round(floor, 4), round(ours, 4),
             f"floor at {rate:.0f} TFLOP/s over ours", True)
        memory = device.memory()
        del sides
        torch.cuda.empty_cache()
    print({kind: f"{peak / 2**20:.1f} MiB peak" for kind, (_, peak) in memory.items()})


if __name__ == "__main__":
    main()
