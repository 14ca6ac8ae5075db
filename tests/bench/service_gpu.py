#!/usr/bin/env python3
"""The whole service against its own engine, and against the PyTorch encoder behind Python gRPC, in one run on one machine.

    DEEPENCODER_BIN=BUNDLE service_gpu.py --out tests/bench/results/service_gpu.json        on a GPU
    service_gpu.py --device cpu --engine-bench build/bin/cpu_encoder_bench --out FILE       a small model on the CPU, to try it

Measures, for JPEG pages in base and in gundam mode, these --parts:
    saturation   images/s with many requests under way, over what the engine alone reaches at the batch size the server ran;
                 what the server's processes and the load generator took of the processors, and what decoding took
    latency      concurrency 1: p50 less what decoding, views and the encoder took, which is what the service itself adds, through
                 TCP and through a unix socket, each with replies through the socket and through shared memory;
                 half of the saturated rate, random arrivals: p99 over p50
    model        p50 and p99 of base pages at half and at 80 % load, beside what queue_model.py predicts from the engine's times
    bits         the same pages with and without graphs, with 1 and more slots, alone and beside other load: equal bits?
    gaps         longest pause of the GPU at saturation (CUPTI; --trace-library, built from tests/bench/gpu_trace.cc)
    cores        images/s at saturation with the server on so many processors (--cores): where they stop being the limit
    devices      images/s of all GPUs over those of one, with the same load (needs two)
    peer         tests/bench/peer_server.py under the same load: images/s, and p99 at half of its own saturated rate
The load generator, `deepencoder bench`, runs on the same machine. The results file is written after every figure; --keep leaves
what it has of other parts.
"""
import argparse
import array
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import traceback

import queue_model
from engine_alone import CpuEngine, CudaEngine
from service_tools import PROGRAMS, ROOT, Process, Results, Server, bench, cpu_name, gpu_names, synthesize, total

MODES = ("base", "gundam")
PARTS = ("saturation", "latency", "model", "bits", "gaps", "cores", "devices", "peer")
GUNDAM_TILES = 6  # of the page: 900 x 1200 pixels
BASE_SIDE, TILE_SIDE = 1024, 640
SHARED_MIB = 64
BIT_IMAGES = ("page_rgb.jpg", "photo_scene.jpg", "mid_1830x2196.jpg", "size_1280x640.jpg", "exif_6.jpg", "rgba.png")


# ---------------------------------------------------------------- load

class Loads:
    """The load generator with this run's pages."""

    def __init__(self, options):
        self.options = options

    def __call__(self, address, mode, *flags, seconds=None):
        return bench(address, self.options.page, f"--mode={mode}", f"--duration={seconds or self.options.seconds}s",
                     f"--warmup={self.options.warm_up}s", "--timeout=5m", *flags)[0]

    def saturate(self, address, mode, processes=1):
        """With `processes` generators, each on a connection of its own and with as many requests under way as one alone."""
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            runs = [pool.submit(self, address, mode, f"--concurrency={self.options.concurrency[mode]}") for _ in range(processes)]
            points = [run.result() for run in runs]
        return points[0] | {"images_per_second": sum(point["images_per_second"] for point in points)}

    def at_rate(self, address, mode, rate):
        return self(address, mode, f"--rate={rate:.3f}", seconds=2 * self.options.seconds)


def difference(after, before, name, **labels):
    return total(after, name, **labels) - total(before, name, **labels)


def mean_batch(after, before, side):
    """Views a batch, pad views included; 0 without one."""
    views = difference(after, before, "deepencoder_batch_size_sum", side=side)
    batches = difference(after, before, "deepencoder_batch_size_count", side=side)
    return (views + difference(after, before, "deepencoder_batch_padding_total", side=side)) / max(batches, 1)


class Usage:
    """What is used while a `with` block runs, per image answered in it: milliseconds of processor and of each stage."""

    def __init__(self, server):
        self.server = server

    def now(self):
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)  # the generator: the server runs on
        return self.server.metrics(), self.server.cpu_seconds(), spent.ru_utime + spent.ru_stime, time.monotonic()

    def __enter__(self):
        self.start = self.now()
        return self

    def __exit__(self, *_):
        (before, server, generator, begin), (after, server_after, generator_after, end) = self.start, self.now()
        images = max(difference(after, before, "deepencoder_images_total"), 1)
        self.batches = {side: size for side in (BASE_SIDE, TILE_SIDE) if (size := mean_batch(after, before, side))}
        self.server_ms, self.generator_ms = (1e3 * spent / images for spent in (server_after - server, generator_after - generator))
        self.prepare_ms = 1e3 / images * sum(difference(after, before, "deepencoder_stage_duration_seconds_sum", stage=stage)
                                             for stage in ("decode", "views"))
        self.pad_share = difference(after, before, "deepencoder_batch_padding_total") / max(
            difference(after, before, "deepencoder_batch_size_sum"), 1)
        self.seconds = end - begin


# ---------------------------------------------------------------- the parts

class Run:
    """What the parts share: the model, the results, and one server for those that need no other."""

    def __init__(self, options, folder):
        self.options, self.folder, self.loads = options, folder, Loads(options)
        self.model = synthesize(f"{folder}/model", options.sam_depth, options.clip_layers)
        gpus = gpu_names()
        self.gpus = len(gpus) if options.device == "cuda" else 0
        self.device = gpus[0] if self.gpus else cpu_name()
        self.results = Results(options.out, f"{self.device}; {os.cpu_count()} of {cpu_name()}", options.keep)
        self.rates, self.main = {}, None

    def server(self, name, *flags, modes=None, **more):
        options = self.options
        return Server(self.model, self.folder, f"--device={options.device}", f"--modes={','.join(modes or options.modes)}",
                      f"--threads={options.threads}", f"--batch-buckets={','.join(map(str, options.buckets))}",
                      *(["--compute-dtype=fp32"] if options.small else []), *flags, name=name, **more)

    def one_gpu(self):
        return [f"--slots={self.options.slots}", *(["--devices=0"] if self.gpus else [])]

    def main_server(self):
        if self.main is None:
            self.main = self.server("main", "--shared-memory", *self.one_gpu(), unix=True)
        return self.main

    def stop(self):
        if self.main is not None:
            self.main.stop()
            self.main = None

    def rate(self, mode):
        """Images/s at saturation."""
        if mode not in self.rates:
            self.rates[mode] = self.loads.saturate(self.main_server().address, mode)["images_per_second"]
        return self.rates[mode]


def engine_alone(run):
    options = run.options
    if options.device == "cuda":
        return CudaEngine(options.library, run.model, (TILE_SIDE, BASE_SIDE), options.buckets, options.slots)
    return CpuEngine(options.engine_bench, run.model, "fp32", options.threads) if options.engine_bench else None


def engine_rate(engine, mode, batches, options):
    """Images/s of the engine alone at the buckets that are nearest to what the server ran, and those buckets."""
    chosen = {side: min(options.buckets, key=lambda size: abs(size - batches.get(side, 1)))
              for side in ((BASE_SIDE,) if mode == "base" else (BASE_SIDE, TILE_SIDE))}
    rates = {side: engine.images_per_second(side, bucket, options.seconds / 2) for side, bucket in chosen.items()}
    return 1 / (1 / rates[BASE_SIDE] + (GUNDAM_TILES / rates[TILE_SIDE] if mode != "base" else 0)), chosen


def measure_saturation(run):
    engine, server = engine_alone(run), run.main_server()
    for mode in run.options.modes:
        with Usage(server) as usage:
            point = run.loads.saturate(server.address, mode)
        rate = run.rates[mode] = point["images_per_second"]
        alone, buckets = engine_rate(engine, mode, usage.batches, run.options) if engine else (None, {})
        run.results.add(f"{mode}: saturation", "images/s", rate, alone, "the engine alone, same batch sizes", True, bar=0.92,
                        concurrency=run.options.concurrency[mode], mean_batch={side: round(size, 1) for side, size in usage.batches.items()},
                        engine_buckets=buckets, pad_share=round(usage.pad_share, 4), latency_ms=milliseconds(point["latency_seconds"]),
                        errors=point["errors"])
        # A decode thread is at one image at a time: so many are busy when the GPU is full.
        run.results.add(f"{mode}: processors at saturation", "processors", rate * usage.server_ms / 1e3, os.cpu_count(),
                        "of the machine", False, server_ms_an_image=round(usage.server_ms, 3),
                        generator_ms_an_image=round(usage.generator_ms, 3), decode_and_views_ms_an_image=round(usage.prepare_ms, 3),
                        decode_threads_busy=round(rate * usage.prepare_ms / 1e3, 2),
                        decode_threads=int(total(server.metrics(), "deepencoder_decode_threads")))
    if engine:
        engine.close()


def milliseconds(distribution):
    return {name: round(1e3 * distribution[name], 3) for name in ("p50", "p90", "p99", "max")}


def measure_latency(run):
    address, unix = run.main_server().address, run.main_server().unix_address
    shared = (f"--shared-memory={SHARED_MIB}",)
    for mode in run.options.modes:
        rate = run.rate(mode)
        for way, target, flags in (("", address, ()), (" through shared memory", address, shared),
                                   (" through a unix socket", unix, ()), (" through a unix socket and shared memory", unix, shared)):
            alone = run.loads(target, mode, "--concurrency=1", *flags, seconds=run.options.seconds / 2)
            stages = alone["stage_seconds"]
            parts = sum(stages[stage]["p50"] for stage in ("decode", "views", "compute"))
            p50 = alone["latency_seconds"]["p50"]
            run.results.add(f"{mode}: concurrency 1{way}, p50 beside decode + views + encoder", "ms", p50 * 1e3, parts * 1e3,
                            "sum of p50 by stage", False, added_ms=round((p50 - parts) * 1e3, 3), bar_ms=1.0,
                            stages_ms={stage: round(values["p50"] * 1e3, 3) for stage, values in stages.items()},
                            latency_ms=milliseconds(alone["latency_seconds"]), images=alone["images"])
        half = run.loads.at_rate(address, mode, rate / 2)
        latency = half["latency_seconds"]
        run.results.add(f"{mode}: half load, p99 beside p50", "ms", latency["p99"] * 1e3, latency["p50"] * 1e3, "p50", False, bar=3.0,
                        rate=round(rate / 2, 2), latency_ms=milliseconds(latency), images=half["images"], errors=half["errors"])


def measure_model(run):
    """The model gets the engine's times and the service's share from this run, but nothing that was measured at these loads."""
    options, engine, server = run.options, engine_alone(run), run.main_server()
    times = {size: 1e3 * size / engine.images_per_second(BASE_SIDE, size, options.seconds / 8, slots=1) for size in options.buckets}
    engine.close()
    alone = run.loads(server.address, "base", "--concurrency=1")
    stage = {name: 1e3 * values["p50"] for name, values in alone["stage_seconds"].items()}
    decode = stage["decode"] + stage["views"]
    settings = argparse.Namespace(
        views={BASE_SIDE: 1}, times={BASE_SIDE: queue_model.Times(times)}, buckets=options.buckets, slots=options.slots, decode=decode,
        decode_threads=int(total(server.metrics(), "deepencoder_decode_threads")), spread=0, exact=options.small, images=20000, seed=1,
        large=math.inf if options.small else queue_model.LARGE,
        overhead=max(1e3 * alone["latency_seconds"]["p50"] - decode - stage["compute"], 0))
    for load in (0.5, 0.8):
        rate = load * run.rate("base")
        measured = run.loads.at_rate(server.address, "base", rate)
        for quantile, predicted in queue_model.predict(settings, rate).items():
            run.results.add(f"base: {quantile} at {load:.0%} load, by the queue model", "ms", predicted,
                            1e3 * measured["latency_seconds"][quantile], "measured", False, rate=round(rate, 2), images=measured["images"],
                            batch_ms={size: round(ms, 2) for size, ms in times.items()}, decode_ms=round(decode, 2),
                            overhead_ms=round(settings.overhead, 2))


def measure_peer(run):
    """Both at saturation, then both at half of what the peer can take."""
    options, ready = run.options, pathlib.Path(run.folder) / "peer.ready"
    name = f"PyTorch{' compiled' if options.peer_compile else ', eager'}, {options.peer_attention} bias, Python gRPC"
    command = [options.peer_python, ROOT / "tests/bench/peer_server.py", f"--ready-file={ready}", f"--device={options.device}",
               f"--modes={','.join(options.modes)}", f"--attention={options.peer_attention}", f"--max-batch={options.buckets[-1]}",
               f"--sam-depth={options.sam_depth}", f"--clip-layers={options.clip_layers}", f"--threads={options.threads}",
               *(["--compile"] if options.peer_compile else [])]
    server = run.main_server()
    with Process(command, pathlib.Path(run.folder) / "peer.log") as peer:
        address = peer.wait_for_file(ready, options.peer_start).strip().removeprefix("grpc=")
        for mode in options.modes:
            rate = run.rate(mode)
            point = run.loads.saturate(address, mode)
            theirs = point["images_per_second"]
            run.results.add(f"{mode}: saturation beside the peer", "images/s", rate, theirs, name, True, peer_errors=point["errors"])
            ours, other = (run.loads.at_rate(at, mode, theirs / 2)["latency_seconds"] for at in (server.address, address))
            for quantile in ("p50", "p99"):
                run.results.add(f"{mode}: {quantile} at half of the peer's saturated rate", "ms", ours[quantile] * 1e3,
                                other[quantile] * 1e3, name, False, rate=round(theirs / 2, 2))


def digests(run, address, folder, concurrency):
    """{mode/image: SHA-256 of its rows in fp32}"""
    found = {}
    for mode in run.options.modes:
        out = pathlib.Path(folder) / mode
        out.mkdir(parents=True)
        subprocess.run([PROGRAMS / "deepencoder", "encode", *(ROOT / "tests/data/images" / name for name in BIT_IMAGES),
                        f"--server={address}", f"--mode={mode}", f"--out-dir={out}", "--format=npy", "--dtype=fp32",
                        f"--concurrency={concurrency}", "--timeout=5m", "--quiet"], check=True)
        found |= {f"{mode}/{path.stem}": hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}
    if len(found) != len(run.options.modes) * len(BIT_IMAGES):
        sys.exit(f"{len(found)} images were answered")
    return found


def in_company(run, server, name):
    """The same images while others keep the server full, so that they share its batches."""
    others = subprocess.Popen([PROGRAMS / "deepencoder", "bench", run.options.page, f"--server={server.address}",
                               f"--mode={','.join(f'{mode}:1' for mode in run.options.modes)}", "--timeout=5m",
                               f"--concurrency={run.options.concurrency['base']}", "--duration=10m"], stdout=subprocess.DEVNULL)
    try:
        while total(server.metrics(), "deepencoder_in_flight") < run.options.concurrency["base"] // 2:
            if others.poll() is not None:
                sys.exit(f"the load generator ended with status {others.returncode}")
            time.sleep(0.05)
        return digests(run, server.address, f"{run.folder}/bits/{name}", len(BIT_IMAGES))
    finally:
        others.kill()
        others.wait()


def measure_bits(run):
    found = {}
    server = run.main_server()
    found["graphs, alone"] = digests(run, server.address, f"{run.folder}/bits/alone", 1)
    found["graphs, in company"] = in_company(run, server, "company")
    run.stop()
    slots = run.one_gpu()[1:]
    for name, flags in {"no graphs, 1 slot": ["--no-graphs", "--slots=1"], "graphs, 4 slots": ["--slots=4"]}.items():
        with run.server(name.replace(" ", "-"), *slots, *flags) as other:
            found[f"{name}, alone"] = digests(run, other.address, f"{run.folder}/bits/{name}", 1)
            found[f"{name}, in company"] = in_company(run, other, f"{name} company")
    first = found["graphs, alone"]
    equal = {name: sum(sums[image] == first[image] for image in first) for name, sums in found.items()}
    run.results.add("images with the same bits, in the worst setting", "images", min(equal.values()), len(first), "all", True,
                    settings=equal, different=sorted({image for sums in found.values() for image in first if sums[image] != first[image]}))


def idle_gaps(path, load_seconds):
    """Pauses between intervals of GPU work, longest first (seconds), and the span that was looked at.

    That is the middle of the load, which is the last work of the trace: before it come loading, graphs and warm-up.
    """
    times = array.array("Q")
    times.frombytes(pathlib.Path(path).read_bytes())
    work = sorted(zip(times[::2], times[1::2]))
    last = max(end for _, end in work)
    begin, stop = (last - int(share * load_seconds * 1e9) for share in (0.8, 0.15))
    gaps, reached = [], begin
    for start, end in work:
        if start >= stop:
            break
        if start > reached:
            gaps.append((start - reached) / 1e9)
        reached = max(reached, end)
    return sorted(gaps, reverse=True), (stop - begin) / 1e9


def cupti_folder():
    """Where libcupti is, if not where the loader looks: in the toolkit, or beside PyTorch."""
    places = [pathlib.Path("/usr/local/cuda/extras/CUPTI/lib64"), pathlib.Path("/usr/local/cuda/lib64"),
              *(pathlib.Path(entry) / "nvidia/cu13/lib" for entry in sys.path)]
    return next((str(place) for place in places if list(place.glob("libcupti.so.13*"))), "")


def measure_gaps(run):
    options, seconds = run.options, 2 * run.options.seconds
    run.stop()
    for mode in options.modes:
        trace = pathlib.Path(run.folder) / f"trace-{mode}"
        environment = {"CUDA_INJECTION64_PATH": str(pathlib.Path(options.trace_library).resolve()), "DEEPENCODER_GPU_TRACE": str(trace),
                       "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (os.environ.get("LD_LIBRARY_PATH"), cupti_folder())))}
        with run.server(f"traced-{mode}", *run.one_gpu(), modes=[mode], environment=environment) as server:
            rate = run.loads(server.address, mode, f"--concurrency={options.concurrency[mode]}", seconds=seconds)["images_per_second"]
            server.stop()
        if not trace.exists() or not trace.stat().st_size:
            sys.exit(f"no trace was written; libcupti in {cupti_folder() or 'no known place'}\n{server.log_path.read_text()}")
        gaps, span = idle_gaps(trace, seconds)
        run.results.add(f"{mode}: longest idle gap of the GPU at saturation", "ms", (gaps or [0])[0] * 1e3, 0.5, "the bar", False,
                        gaps_over_half_ms=sum(gap > 5e-4 for gap in gaps), longest_ms=[round(1e3 * gap, 3) for gap in gaps[:5]],
                        idle_share=round(sum(gaps) / span, 5), span_seconds=round(span, 2), images_per_second_traced=round(rate, 2))


def measure_cores(run):
    """The server on the first N processors, the load generator wherever it likes."""
    run.stop()
    every, rates = sorted(os.sched_getaffinity(0)), {}
    for count in [count for count in run.options.cores if count < len(every)] + [len(every)]:
        with run.server(f"cores-{count}", *run.one_gpu(), modes=["base"], processors=set(every[:count])) as server:
            with Usage(server) as usage:
                rates[count] = run.loads.saturate(server.address, "base")["images_per_second"]
    for count, rate in rates.items():
        run.results.add(f"base: saturation with the server on {count} processors", "images/s", rate, rates[len(every)],
                        f"on {len(every)}", True)


def measure_devices(run):
    run.stop()
    for mode in run.options.modes:
        rates = []
        for devices in ("0", ",".join(map(str, range(run.gpus)))):
            with run.server(f"devices-{mode}-{devices}", f"--slots={run.options.slots}", f"--devices={devices}", modes=[mode]) as server:
                with Usage(server) as usage:
                    rates.append(run.loads.saturate(server.address, mode, processes=run.gpus)["images_per_second"])
        run.results.add(f"{mode}: saturation with {run.gpus} GPUs", "images/s", rates[1], rates[0], "one GPU, same load", True,
                        bar=0.95 * run.gpus, processors=round(rates[1] * usage.server_ms / 1e3, 2),
                        decode_threads_busy=round(rates[1] * usage.prepare_ms / 1e3, 2))


# ---------------------------------------------------------------- options

def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--page", default=str(ROOT / "tests/data/images/page_rgb.jpg"))
    parser.add_argument("--seconds", type=float, default=8, help="of a measurement")
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--buckets", type=numbers, help="of the server, the engine alone and the peer's largest batch")
    parser.add_argument("--slots", type=int, help="of the server and the engine alone")
    parser.add_argument("--cores", type=numbers, default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--library", default=str(PROGRAMS / "lib/libdeepencoder_cuda.so"), help="for the engine alone")
    parser.add_argument("--engine-bench", help="cpu_encoder_bench, for the engine alone on the CPU")
    parser.add_argument("--trace-library", help="libdeepencoder_gpu_trace.so; none: idle gaps are not measured")
    parser.add_argument("--peer-python", default=sys.executable, help="that has torch and grpcio")
    parser.add_argument("--peer-attention", choices=("dense", "augmented"), default="augmented", help="augmented is the faster one")
    parser.add_argument("--peer-compile", action="store_true")
    parser.add_argument("--peer-start", type=float, default=300, help="seconds that the peer may take to be ready")
    parser.add_argument("--keep", action="store_true", help="what --out has under other names")
    parser.add_argument("--out")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    options.small = options.device == "cpu"
    options.sam_depth, options.clip_layers = (1, 1) if options.small else (12, 24)
    options.threads = 1 if options.small else 0
    options.slots = options.slots or (1 if options.small else 2)
    options.buckets = options.buckets or ([1, 2] if options.small else [1, 2, 4, 8, 16, 32])
    # Twice what the slots hold, so that a full batch always waits: the GPU is to be the limit.
    options.concurrency = {"base": 2 * options.slots * options.buckets[-1], "gundam": max(options.slots * options.buckets[-1], 2)}
    return options


def main():
    options = parse()
    measures = {"saturation": measure_saturation, "latency": measure_latency, "model": measure_model, "bits": measure_bits,
                "gaps": measure_gaps, "cores": measure_cores, "devices": measure_devices, "peer": measure_peer}
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder)
        cannot = {"gaps": not options.trace_library and "no --trace-library", "devices": run.gpus < 2 and f"{run.gpus} GPUs",
                  "model": options.small and not options.engine_bench and "no --engine-bench"}
        failed = []
        try:
            for part in options.parts:
                if why := cannot.get(part):
                    print(f"{part}: left out, {why}", flush=True)
                    continue
                begin = time.monotonic()
                try:
                    measures[part](run)
                except (Exception, SystemExit):  # time on a GPU is dear: the other parts are still worth it
                    traceback.print_exc()
                    failed.append(part)
                print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
        finally:
            run.stop()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
