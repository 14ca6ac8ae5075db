#!/usr/bin/env python3
"""Times our global attention, all bias work inside, beside cuDNN attention with no bias at all.

    global_attention.py LIBRARY [--out results/global_attention.json] [--commit HASH] [--rounds 15]

LIBRARY is libglobal_attention_c.so (target global_attention_c). Both sides run in this process on one stream, as
CUDA graphs of several launches, so that no time of Python's is in the figures ("graph"), and as single calls between
two events, as bench/torch_peers.py and most reports time them ("call"; short ones hold host time of both sides).
The sides are timed in turn, and which goes first alternates. A figure is the median over the rounds; spread is the
range of their middle 80 % as a fraction of it. The error is ||out - ref|| / ||ref|| against float64 for one head, the peer's against its own
(bias-free) reference. Peak bytes are what a side takes beyond its inputs and output.
Needs a CUDA build of torch and one GPU.
"""
import argparse
import ctypes
import datetime
import json
import os
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, DIM = 12, 64
MODEL = HEADS * DIM
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
KERNELS = {"auto": 0, "hopper": 1, "portable": 2}


class Ours:
    """Launches the kernel on the current stream."""

    def __init__(self, library):
        self.call = ctypes.CDLL(library).deepencoder_global_attention
        self.error = ctypes.create_string_buffer(512)

    def __call__(self, qkv, rel_h, rel_w, out, repeated, kernel="auto"):
        batch, tokens = qkv.shape[:2]
        grid = (rel_h.shape[0] + 1) // 2
        pointer = lambda t: ctypes.c_void_p(t.data_ptr())
        code = self.call(
            int(qkv.dtype == torch.float16), batch, HEADS, grid, tokens // grid, pointer(qkv), pointer(rel_h),
            pointer(rel_w), pointer(out), pointer(repeated), KERNELS[kernel],
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), self.error, ctypes.c_size_t(len(self.error)))
        if code != 0:
            raise RuntimeError(self.error.value.decode())


def make_inputs(grid, batch, dtype, far):
    """The fused product and the tables. far: each query's key lies half the grid away (every row is repeated)."""
    tokens = grid * grid
    qkv = torch.randn(batch, tokens, 3, HEADS, DIM, device="cuda")
    if far:
        qkv[:, :, 0] *= 5
        qkv[:, :, 1] = qkv[:, :, 0].roll(tokens // 2, 1)
    tables = [(torch.randn(2 * grid - 1, DIM, device="cuda") / 4).to(dtype) for _ in range(2)]
    return qkv.to(dtype), *tables


def reference(qkv, rel_h, rel_w, grid, head, bias=True):
    """Float64 attention of the last image's head."""
    q, k, v = qkv[-1, :, :, head].double().unbind(1)
    score = q @ k.T / DIM**0.5
    if bias:
        offset = torch.arange(grid, device="cuda")[:, None] - torch.arange(grid, device="cuda") + grid - 1
        rows = q.view(grid, grid, DIM)
        bias_h = torch.einsum("hwc,hkc->hwk", rows, rel_h.double()[offset])
        bias_w = torch.einsum("hwc,wkc->hwk", rows, rel_w.double()[offset])
        score += (bias_h[..., :, None] + bias_w[..., None, :]).reshape(grid * grid, -1)
    return torch.softmax(score, -1) @ v


def relative_error(out, ref):
    return ((out.double() - ref).norm() / ref.norm()).item()


def peak_beyond(fn, *kept):
    """Bytes allocated while fn runs, beyond what was there and what it returns or was given to fill."""
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = fn()
    torch.cuda.synchronize()
    outside = free - torch.cuda.mem_get_info()[0] if result is None else 0  # not torch's: cudaMalloc of the library
    own = 0 if result is None else result.untyped_storage().nbytes()
    return max(0, torch.cuda.max_memory_allocated() - before - own) + max(0, outside)


def capture(fn, count):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            fn()
    return graph.replay


def in_turn(sides, rounds, count, warmup=3):
    """Medians in ms a launch and spreads; a side is a function of no arguments that makes `count` launches."""
    times = [[] for _ in sides]
    for r in range(warmup + rounds):
        for i in range(len(sides)) if r % 2 == 0 else reversed(range(len(sides))):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            sides[i]()
            stop.record()
            stop.synchronize()
            if r >= warmup:
                times[i].append(start.elapsed_time(stop) / count)
    result = []
    for t in times:
        t.sort()
        median = statistics.median(t)
        result.append((median, (t[-1 - len(t) // 10] - t[len(t) // 10]) / median))
    return result


def launches(grid, batch):
    """In a graph: about 2 ms of work."""
    return max(2, min(50, round(2e12 / (4 * batch * MODEL * grid**4))))


def against_cudnn(ours, grid, batch, name, rounds, how):
    dtype = TYPES[name]
    qkv, rel_h, rel_w = make_inputs(grid, batch, dtype, far=False)
    out = torch.full((batch, grid * grid, HEADS, DIM), float("nan"), device="cuda", dtype=dtype)
    repeated = torch.zeros(1, dtype=torch.int64, device="cuda")
    q, k, v = (qkv[:, :, i].transpose(1, 2).contiguous() for i in range(3))

    def run_ours():
        ours(qkv, rel_h, rel_w, out, repeated)

    def run_peer():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)

    run_ours(), run_peer()
    ours_bytes, peer_bytes = peak_beyond(run_ours), peak_beyond(run_peer)
    error = relative_error(out[-1, :, 5], reference(qkv, rel_h, rel_w, grid, 5))
    peer_error = relative_error(run_peer()[-1, 5], reference(qkv, rel_h, rel_w, grid, 5, bias=False))
    repeated.zero_()
    run_ours()
    share = repeated.item() / (HEADS * batch * grid**2)
    count = launches(grid, batch)
    if how == "call":
        sides, count = [run_ours, run_peer], 1
    else:
        sides = [capture(run_ours, count), capture(run_peer, count)]
    (ms, spread), (peer_ms, peer_spread) = in_turn(sides, rounds, count)
    return {
        "name": f"global_attention/{how}/grid{grid}/batch{batch}/{name}", "unit": "ms", "ours": round(ms, 5),
        "peer": round(peer_ms, 5), "peer_name": "cuDNN attention without bias (torch SDPA)",
        "ratio": round(ms / peer_ms, 4), "ours_spread": round(spread, 4), "peer_spread": round(peer_spread, 4),
        "ours_error": error, "peer_error": peer_error, "ours_peak_bytes": ours_bytes, "peer_peak_bytes": peer_bytes,
        "written": bool(torch.isfinite(out).all()),
        "repeated_rows": share,
        "tflops": round(4 * batch * MODEL * grid**4 / ms / 1e9, 1)}


def worst_case(ours, grid, batch, name, rounds):
    """All rows repeated, over none."""
    dtype = TYPES[name]
    out = torch.empty(batch, grid * grid, HEADS, DIM, device="cuda", dtype=dtype)
    sides, rows, kept, count = [], [], [], launches(grid, batch)
    for far in (True, False):
        inputs = make_inputs(grid, batch, dtype, far)
        kept.append(inputs)  # a graph does not keep what it reads
        repeated = torch.zeros(1, dtype=torch.int64, device="cuda")
        kept.append(repeated)
        ours(*inputs, out, repeated)
        rows.append(repeated.item() / (batch * HEADS * grid**2))
        if far:
            error = relative_error(out[-1, :, 5], reference(*inputs, grid, 5))
        sides.append(capture(lambda i=inputs, r=repeated: ours(*i, out, r), count))
    (slow, slow_spread), (fast, fast_spread) = in_turn(sides, rounds, count)
    return {
        "name": f"global_attention/slow_path/grid{grid}/batch{batch}/{name}", "unit": "ms", "ours": round(slow, 5),
        "peer": round(fast, 5), "peer_name": "the same kernel, no row repeated", "ratio": round(slow / fast, 4),
        "ours_spread": round(slow_spread, 4), "peer_spread": round(fast_spread, 4), "ours_error": error,
        "repeated_rows": rows[0], "peer_repeated_rows": rows[1]}


def portable(ours, grid, batch, name, rounds):
    """The portable kernel on this GPU, over the one that is chosen."""
    inputs = make_inputs(grid, batch, TYPES[name], far=False)
    out = torch.empty(batch, grid * grid, HEADS, DIM, device="cuda", dtype=TYPES[name])
    repeated = torch.zeros(1, dtype=torch.int64, device="cuda")
    sides, count = [], launches(grid, batch)
    for kernel in ("portable", "auto"):
        sides.append(capture(lambda k=kernel: ours(*inputs, out, repeated, k), count))
    (ms, spread), (peer_ms, peer_spread) = in_turn(sides, rounds, count)
    return {
        "name": f"global_attention/portable/grid{grid}/batch{batch}/{name}", "unit": "ms", "ours": round(ms, 5),
        "peer": round(peer_ms, 5), "peer_name": "the kernel chosen on this GPU", "ratio": round(ms / peer_ms, 4),
        "ours_spread": round(spread, 4), "peer_spread": round(peer_spread, 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--out")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.manual_seed(0)
    ours = Ours(args.library)
    common = {
        "higher_is_better": False, "device": torch.cuda.get_device_name(), "commit": args.commit,
        "command": "python3 tests/bench/global_attention.py " + " ".join([os.path.basename(args.library), f"--rounds {args.rounds}"]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    jobs = [(against_cudnn, grid, batch, name, (how,)) for how in ("graph", "call") for name in TYPES
            for grid in (64, 40, 80, 48, 32) for batch in (1, 8)]
    jobs += [(worst_case, 64, batch, name, ()) for name in TYPES for batch in (1, 8)]
    jobs += [(portable, 64, 8, "bf16", ())]
    rows = []
    for job, grid, batch, name, more in jobs:
        rows.append(job(ours, grid, batch, name, args.rounds, *more) | common)
        short = {k: v for k, v in rows[-1].items() if k not in common and k not in ("unit", "peer_name")}
        print(json.dumps(short), flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
