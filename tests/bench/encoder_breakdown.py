#!/usr/bin/env python3
"""Where the time of one encode goes on a GPU: a table by operation, with achieved rates.

    encoder_breakdown.py --library libdeepencoder_cuda.so [--side 1024] [--batch 8]

Kernels are timed by CUPTI through PyTorch's profiler while the backend runs without graphs; an operation is told by
the kernel's name and, for products, by its place in the sequence. Rates count what the operation must do: 2mnk a
product, 4 N^2 d a head of attention, each activation read or written once.
"""
import argparse
import collections
import pathlib
import re
import sys

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/gpu")]
import cuda_backend  # noqa: E402
import synthetic_checkpoint  # noqa: E402

KINDS = (("ViewPatches", "patch gather"), ("ConvPatches", "conv gather"), ("ClipEmbed", "clip embed"),
         ("ClipRows", "clip rows"), ("ReplyRows", "reply rows"), ("LayerNorm", "norm"),
         ("WindowAttention", "window attention"), ("ClipAttention", "clip attention"),
         ("GlobalAttention", "global attention"), ("Hopper", "global attention"))


def kind_of(name):
    if "attention" in name.lower() and not any(word in name for word in ("Window", "Clip")):
        return "global attention"
    return next((kind for word, kind in KINDS if word in name), "product")


def short_name(name):
    """A kernel's name without its namespaces; of ours the tiling of a product."""
    ours = re.search(r"GemmKernel<.*?, (\d+),", name)
    return f"ours, tiling {ours[1]}" if ours else re.sub(r"[(<].*", "", name).split("::")[-1][:40]


def operations(names):
    """The operation of each kernel of a pass, in order."""
    stage, part, out = "patch", "", []
    for kind in map(kind_of, names):
        if kind in ("window attention", "global attention", "clip attention"):
            part = "proj"
        elif kind == "norm":
            if stage == "patch":
                stage = "sam"
            if stage in ("sam", "clip"):
                part = "mlp" if part == "proj" else "qkv"
        elif kind == "conv gather":
            stage = "conv"
        elif kind == "clip embed":
            stage, part = "clip", ""
        elif kind == "clip rows":
            stage = "projector"
        if kind != "product":
            out.append(kind if kind != "norm" else f"{stage} norm")
        elif stage in ("sam", "clip"):
            out.append(f"{stage} {part}")
        else:
            out.append(f"{stage} product")
    return out


def flops(side, batch):
    n, c = (side // 16) ** 2, (side // 64) ** 2
    m, t = batch * n, batch * (c + 1)
    window = batch * (-(-side // 16 // 14)) ** 2
    return {"patch product": 2 * m * 768 * 768, "sam qkv": 12 * 2 * m * 768 * 2304, "sam proj": 12 * 2 * m * 768 * 768,
            "sam mlp": 12 * 4 * m * 768 * 3072, "global attention": 4 * 12 * batch * 4 * n * n * 64,
            "window attention": 8 * 12 * window * 4 * 196 * 196 * 64,
            "conv product": 2 * m * 2304 * 256 + 2 * m // 4 * 2304 * 512 + 2 * m // 16 * 4608 * 1024,
            "clip qkv": 24 * 2 * t * 1024 * 3072, "clip proj": 24 * 2 * t * 1024 * 1024,
            "clip mlp": 24 * 4 * t * 1024 * 4096, "clip attention": 24 * 16 * batch * 4 * (c + 1) ** 2 * 64,
            "projector product": 2 * batch * c * 2048 * 1280}


def traffic(side, batch):
    n, c = (side // 16) ** 2, (side // 64) ** 2
    m, t = batch * n, batch * (c + 1)
    return {"patch gather": m * 768 * 3, "sam norm": (24 * 768 + 768) * m * 4, "clip norm": 48 * t * 1024 * 6,
            "conv norm": 2 * m * 256 * 4, "conv gather": m * (256 + 2304) * 2 + m // 4 * (1024 + 2304) * 2,
            "reply rows": batch * c * 1280 * 6, "clip rows": batch * c * 1024 * 6}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    side, batch = options.side, options.batch
    device = cuda_backend.Backend(synthetic_checkpoint.make(), sides=(side,), buckets=(batch,), graphs=False,
                                  api=cuda_backend.load(options.library))
    slot = device.slot()
    rng = np.random.default_rng(1)
    views = [device.view(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(batch)]
    for _ in range(3):
        slot.encode(side, views, "bf16")
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        torch.cuda.synchronize()
        for _ in range(options.passes):
            slot.encode(side, views, "bf16")
    # What ran on the device; the host's calls are events of the profile too.
    events = sorted((e for e in prof.events() if e.device_type == torch.autograd.DeviceType.CUDA and
                     "Memcpy" not in e.name and "Memset" not in e.name), key=lambda e: e.time_range.start)
    # A pass begins where patches are gathered; what the profiler itself launches lies before the first one.
    starts = [i for i, event in enumerate(events) if kind_of(event.name) == "patch gather"]
    assert len(starts) == options.passes, starts
    count = starts[1] - starts[0]
    micro, calls, kernels = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    for first in starts:
        one = events[first:first + count]
        for event, operation in zip(one, operations([e.name for e in one])):
            micro[operation] += event.time_range.elapsed_us() / options.passes
            calls[operation] += 1 / options.passes
            kernels[operation][short_name(event.name)] += 1
    total, work, bytes_ = sum(micro.values()), flops(side, batch), traffic(side, batch)
    print(f"{torch.cuda.get_device_name()}, side {side}, batch {batch}, {count} kernels, {total / 1e3:.3f} ms in kernels")
    print("| operation | launches | us | share | rate | kernel |\n|---|---|---|---|---|---|")
    for operation, us in micro.most_common():
        rate = f"{work[operation] / us / 1e6:.0f} TFLOP/s" if operation in work else (
            f"{bytes_[operation] / us / 1e6:.2f} TB/s" if operation in bytes_ else "")
        print(f"| {operation} | {calls[operation]:.0f} | {us:.1f} | {100 * us / total:.1f} % | {rate} | "
              f"{', '.join(name for name, _ in kernels[operation].most_common(3))} |")


if __name__ == "__main__":
    main()
