#!/usr/bin/env python3
"""The whole service against its own engine, and against the PyTorch encoder behind Python gRPC, in one run on one machine.

    DEEPENCODER_BIN=BUNDLE service_gpu.py --out tests/bench/results/service_gpu.json        on a GPU, about five minutes
    service_gpu.py --device cpu --engine-bench build/bin/cpu_encoder_bench --out FILE       a small model on the CPU, to try it

Measures, for JPEG pages in base and in gundam mode:
    saturation        images/s with many requests under way, over what the engine alone reaches at the batch size the server ran
    concurrency 1     p50 less what decoding, views and the encoder took: what the service itself adds, in ms
    half load         p99 over p50 at half of the saturated rate, random arrivals
    idle gaps         longest pause of the GPU at saturation (CUPTI; --trace-library, built from tests/bench/gpu_trace.cc)
    peer              tests/bench/peer_server.py under the same load: images/s, and p99 at half of its own saturated rate
    processors        how many the server used, and its decode pool's share
The load generator, `deepencoder bench`, runs on the same machine and takes its part of the processors.
"""
import argparse
import array
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from service_tools import PROGRAMS, ROOT, Process, Results, Server, bench, cpu_name, synthesize, total

MODES = ("base", "gundam")
GUNDAM_TILES = 6  # of the page: 900 x 1200 pixels
BASE_SIDE, TILE_SIDE = 1024, 640


# ---------------------------------------------------------------- the engine alone

class CudaEngine:
    """The CUDA library as the server uses it: `slots` slots that encode batch after batch, into memory of this process."""

    def __init__(self, library, buckets, slots):
        sys.path.append(str(ROOT / "tests/gpu"))
        import cuda_backend
        import numpy
        import synthetic_checkpoint
        self.cuda, self.numpy = cuda_backend, numpy
        self.backend = cuda_backend.Backend(synthetic_checkpoint.make(), sides=(TILE_SIDE, BASE_SIDE), buckets=buckets,
                                            api=cuda_backend.load(str(library)))
        self.slots = [self.backend.slot() for _ in range(slots)]

    def close(self):
        for slot in self.slots:
            slot.close()
        self.backend.close()

    def images_per_second(self, side, batch, seconds):
        view = self.backend.view(self.numpy.random.default_rng(1).integers(0, 256, (side, side, 3), self.numpy.uint8))
        lines, counts, end = side // 64, [0] * len(self.slots), time.monotonic() + seconds

        def run(index):
            rows = self.numpy.empty((batch, lines * lines, 1280), self.numpy.uint16)
            items = (self.cuda.Item * batch)()
            for item, out in zip(items, rows):
                item.views, item.view, item.dtype = view[0].handle, view[1], self.cuda.DTYPES["bf16"]
                item.rows, item.line_stride = out.ctypes.data, lines * 1280 * 2
            slot = self.slots[index]
            while time.monotonic() < end:
                self.cuda.call(self.backend.api.encode, slot.handle, side, items, batch, ctypes.byref(slot.stats))
                counts[index] += batch

        begin = time.monotonic()
        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(self.slots))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - begin)


class CpuEngine:
    """cpu_encoder_bench: one slot."""

    def __init__(self, program, model, type_name, threads):
        self.command = [program, model, "--type", type_name, "--threads", str(threads)]

    def close(self):
        pass

    def images_per_second(self, side, batch, seconds):
        process = subprocess.Popen([*self.command, "--side", str(side), "--batch", str(batch)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end or len(times) < 3:
            process.stdin.write("\n")
            process.stdin.flush()
            times.append(float(process.stdout.readline()))
        process.stdin.close()
        process.wait()
        return batch * 1e3 * len(times[1:]) / sum(times[1:])


# ---------------------------------------------------------------- what is measured

class Loads:
    """The load generator with this run's pages."""

    def __init__(self, options):
        self.options = options

    def __call__(self, address, mode, *flags, seconds=None):
        return bench(address, self.options.page, f"--mode={mode}", f"--duration={seconds or self.options.seconds}s",
                     f"--warmup={self.options.warm_up}s", "--timeout=5m", *flags)[0]

    def saturate(self, address, mode):
        return self(address, mode, f"--concurrency={self.options.concurrency[mode]}")

    def at_rate(self, address, mode, rate):
        return self(address, mode, f"--rate={rate:.3f}", seconds=2 * self.options.seconds)


def difference(after, before, name, **labels):
    return total(after, name, **labels) - total(before, name, **labels)


def mean_batch(after, before, side):
    """Views a batch, pad views included."""
    views = difference(after, before, "deepencoder_batch_size_sum", side=side)
    batches = difference(after, before, "deepencoder_batch_size_count", side=side)
    return (views + difference(after, before, "deepencoder_batch_padding_total", side=side)) / max(batches, 1)


def measure_saturation(results, loads, server, mode, engine):
    before, begin = server.metrics(), time.monotonic()
    point = loads.saturate(server.address, mode)
    after, seconds = server.metrics(), time.monotonic() - begin
    rate = point["images_per_second"]
    batches = {side: round(mean_batch(after, before, side), 1) for side in (BASE_SIDE, TILE_SIDE)
               if difference(after, before, "deepencoder_batch_size_count", side=side)}
    cpu = difference(after, before, "process_cpu_seconds_total") / seconds
    prepare = sum(difference(after, before, "deepencoder_stage_duration_seconds_sum", stage=stage)
                  for stage in ("decode", "views")) / seconds
    more = {"mean_batch": batches, "server_cpus": round(cpu, 2), "busy_decode_threads": round(prepare, 2),
            "decode_threads": int(total(after, "deepencoder_decode_threads")), "errors": point["errors"]}
    alone = engine and engine_rate(engine, mode, batches, loads.options)
    results.add(f"{mode}: saturation", "images/s", rate, alone, "the engine alone, same batch sizes", True, **more)
    return rate


def engine_rate(engine, mode, batches, options):
    """Images/s of the engine alone at the bucket that is nearest to what the server ran."""
    def at(side):
        bucket = min(options.buckets, key=lambda size: abs(size - batches.get(side, 1)))
        return engine.images_per_second(side, bucket, options.seconds / 2)
    return at(BASE_SIDE) if mode == "base" else 1 / (1 / at(BASE_SIDE) + GUNDAM_TILES / at(TILE_SIDE))


def measure_latency(results, loads, server, mode, rate):
    alone = loads(server.address, mode, "--concurrency=1")
    stages = alone["stage_seconds"]
    parts = sum(stages[stage]["p50"] for stage in ("decode", "views", "compute"))
    p50 = alone["latency_seconds"]["p50"]
    results.add(f"{mode}: concurrency 1, p50 beside decode + views + encoder", "ms", p50 * 1e3, parts * 1e3, "sum of p50 by stage",
                False, added_ms=round((p50 - parts) * 1e3, 3), bar_ms=1.0, stages_ms={
                    stage: round(values["p50"] * 1e3, 3) for stage, values in stages.items()})
    half = loads.at_rate(server.address, mode, rate / 2)["latency_seconds"]
    results.add(f"{mode}: half load, p99 beside p50", "ms", half["p99"] * 1e3, half["p50"] * 1e3, "p50; the bar is a ratio of 3",
                False, rate=round(rate / 2, 2))


def measure_peer(results, loads, server, peer, mode, rate):
    theirs = loads.saturate(peer, mode)["images_per_second"]
    results.add(f"{mode}: saturation beside the peer", "images/s", rate, theirs, loads.options.peer_name, True)
    ours, other = (loads.at_rate(address, mode, theirs / 2)["latency_seconds"] for address in (server.address, peer))
    for name in ("p50", "p99"):
        results.add(f"{mode}: {name} at half of the peer's saturated rate", "ms", ours[name] * 1e3, other[name] * 1e3,
                    loads.options.peer_name, False, rate=round(theirs / 2, 2))


def idle_gaps(path):
    """Pauses between intervals of GPU work, longest first (seconds), and the span that was looked at."""
    times = array.array("Q")
    times.frombytes(pathlib.Path(path).read_bytes())
    work = sorted(zip(times[::2], times[1::2]))
    # Before (loading, graphs, warm-up) and after it the load is not the one that is looked at.
    first, last = work[0][0], max(end for _, end in work)
    begin, stop = first + (last - first) // 2, first + 9 * (last - first) // 10
    gaps, reached = [], begin
    for start, end in work:
        if start >= stop:
            break
        if start > reached:
            gaps.append((start - reached) / 1e9)
        reached = max(reached, end)
    return sorted(gaps, reverse=True), (stop - begin) / 1e9


def measure_gaps(results, loads, model, folder, options):
    trace = pathlib.Path(folder) / "trace"
    with Server(model, folder, *options.server_flags, name="traced", environment={
            "CUDA_INJECTION64_PATH": str(pathlib.Path(options.trace_library).resolve()), "DEEPENCODER_GPU_TRACE": str(trace)}) as server:
        loads(server.address, "base", f"--concurrency={options.concurrency['base']}", seconds=2 * options.seconds)
        server.stop()
    if not trace.exists():
        print("no trace was written: is libcupti where the loader looks (LD_LIBRARY_PATH)?", file=sys.stderr)
        return
    gaps, span = idle_gaps(trace)
    results.add("base: longest idle gap of the GPU at saturation", "ms", (gaps or [0])[0] * 1e3, 0.5, "the bar", False,
                gaps_over_half_ms=sum(gap > 5e-4 for gap in gaps), idle_share=round(sum(gaps) / span, 5), span_seconds=round(span, 2))


def peer_command(options, ready):
    return [options.peer_python, ROOT / "tests/bench/peer_server.py", f"--ready-file={ready}", f"--device={options.device}",
            f"--modes={','.join(options.modes)}", f"--attention={options.peer_attention}", f"--max-batch={options.buckets[-1]}",
            f"--sam-depth={options.sam_depth}", f"--clip-layers={options.clip_layers}", f"--threads={options.threads}",
            *(["--compile"] if options.peer_compile else [])]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--page", default=str(ROOT / "tests/data/images/page_rgb.jpg"))
    parser.add_argument("--seconds", type=float, default=8, help="of a measurement")
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--library", default=str(PROGRAMS / "lib/libdeepencoder_cuda.so"), help="for the engine alone")
    parser.add_argument("--engine-bench", help="cpu_encoder_bench, for the engine alone on the CPU")
    parser.add_argument("--trace-library", help="libdeepencoder_gpu_trace.so; none: idle gaps are not measured")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--peer-python", default=sys.executable, help="that has torch and grpcio")
    parser.add_argument("--peer-attention", choices=("dense", "augmented"), default="dense")
    parser.add_argument("--peer-compile", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    small = options.device == "cpu"
    options.sam_depth, options.clip_layers = (1, 1) if small else (12, 24)
    options.threads = 1 if small else 0
    options.buckets = [1, 2] if small else [1, 2, 4, 8, 16, 32]
    options.concurrency = {"base": 2 * options.buckets[-1] + 2, "gundam": max(options.buckets[-1] // 2, 4)}
    options.server_flags = [f"--device={options.device}", f"--modes={','.join(options.modes)}", f"--threads={options.threads}",
                            f"--batch-buckets={','.join(map(str, options.buckets))}", "--slots=" + ("1" if small else "2"),
                            *(["--compute-dtype=fp32"] if small else [])]
    options.peer_name = f"PyTorch{' compiled' if options.peer_compile else ', eager'}, {options.peer_attention} bias, Python gRPC"
    return options


def main():
    options = parse()
    loads = Loads(options)
    with tempfile.TemporaryDirectory() as folder:
        model = synthesize(f"{folder}/model", options.sam_depth, options.clip_layers)
        device = cpu_name() if options.device == "cpu" else subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.splitlines()[0]
        results = Results(options.out, f"{device}; {cpu_name()}")
        rates, engine = {}, None
        if options.device == "cuda":
            engine = CudaEngine(options.library, options.buckets, 2)
        elif options.engine_bench:
            engine = CpuEngine(options.engine_bench, model, "fp32", options.threads)
        with Server(model, folder, *options.server_flags) as server:
            for mode in options.modes:
                rates[mode] = measure_saturation(results, loads, server, mode, engine)
            if engine:
                engine.close()
            for mode in options.modes:
                measure_latency(results, loads, server, mode, rates[mode])
            if not options.no_peer:
                ready = pathlib.Path(folder) / "peer.ready"
                with Process(peer_command(options, ready), pathlib.Path(folder) / "peer.log") as peer:
                    address = peer.wait_for_file(ready, 300).strip().removeprefix("grpc=")
                    for mode in options.modes:
                        measure_peer(results, loads, server, address, mode, rates[mode])
        if options.trace_library:
            measure_gaps(results, loads, model, folder, options)


if __name__ == "__main__":
    main()
