#!/usr/bin/env python3
"""Is the memory that the server says it holds on a GPU the memory that CUDA says is gone?

    DEEPENCODER_BIN=BUNDLE device_memory.py --out tests/bench/results/device_memory.json       on an idle GPU, about two minutes

A process beside the server asks the driver for the device's free memory, before the server starts, while it starts and under
load (every 2 ms, for the peak), and takes off what a context of the same program takes when it does nothing. NVML's figure for the
server's process is compared too, where the driver gives it. Then the CUDA library alone, kind by kind: weights, a slot, views.
Exit status 1 if a figure is off by more than 1 %.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from service_tools import PROGRAMS, ROOT, Results, Server, bench, gpu_names, synthesize, total

sys.path.append(str(ROOT / "tests/gpu"))
import device_queries  # noqa: E402

BAR = 0.01
MIB = 1 << 20
KINDS = ("weights", "workspace", "graphs", "views", "code")
CURRENT, PEAK = "deepencoder_device_memory_bytes", "deepencoder_device_memory_peak_bytes"


class Watch(threading.Thread):
    """The least free memory since the last `reset`."""

    def __init__(self, cuda, period=0.002):
        super().__init__(daemon=True)
        self.cuda, self.period, self.ended = cuda, period, threading.Event()
        self.least = cuda.free()

    def run(self):
        while not self.ended.wait(self.period):
            self.least = min(self.least, self.cuda.free())

    def stop(self):
        self.ended.set()
        self.join()


class IdleContext:
    """A process that has loaded the CUDA library, made a context and does nothing more; `bytes` is what that takes."""

    def __init__(self, options, cuda, nvml):
        before = cuda.free()
        self.process = subprocess.Popen([sys.executable, __file__, "--hold-context", "--library", options.library],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            sys.exit("the CUDA library gives no context")
        self.bytes = before - cuda.free()
        self.nvml_bytes = nvml and nvml.process_bytes(self.process.pid)
        self.process.communicate("")


def hold_context(library):
    free = ctypes.c_uint64()
    error = ctypes.create_string_buffer(1024)
    if ctypes.CDLL(library).deepencoder_cuda_free_memory(0, ctypes.byref(free), error) != 0:
        sys.exit(error.value.decode())
    print("ready", flush=True)
    sys.stdin.read()


class Comparison:
    """Rows of ours (the metric) and peer (CUDA), and whether all were near enough."""

    def __init__(self, results):
        self.results, self.good = results, True

    def add(self, name, ours, peer, peer_name, **more):
        near = peer > 0 and abs(ours / peer - 1) <= BAR
        self.good = self.good and near
        self.results.add(name, "MiB", ours / MIB, peer / MIB, peer_name, None, off_mib=round((ours - peer) / MIB, 1),
                         within_1_percent=near, **more)


def kinds_of(metrics, name):
    return {f"{kind}_mib": round(total(metrics, name, device=0, kind=kind) / MIB, 1) for kind in KINDS}


def wait_until_free(cuda, least, seconds=20):
    """Gives the driver time to take back what a process held that has ended. What is free then."""
    end = time.monotonic() + seconds
    while cuda.free() < least and time.monotonic() < end:
        time.sleep(0.05)
    return cuda.free()


def compare_server(comparison, options, cuda, nvml):
    free_before = cuda.free()
    context = IdleContext(options, cuda, nvml)
    wait_until_free(cuda, free_before)
    with tempfile.TemporaryDirectory() as folder:
        model = synthesize(f"{folder}/model", *((1, 1) if options.small else ()))
        watch = Watch(cuda)
        watch.start()
        begin = time.monotonic()
        with Server(model, folder, "--device=cuda", "--devices=0") as server:
            start = round(time.monotonic() - begin, 1)
            name = f"cudaMemGetInfo beside the server, less an idle context ({context.bytes / MIB:.0f} MiB)"

            def compare_current(when, **more):
                metrics = server.metrics()
                comparison.add(f"current, {when}", total(metrics, CURRENT, device=0), free_before - cuda.free() - context.bytes,
                               name, **kinds_of(metrics, CURRENT), **more)

            compare_current("after the start", start_seconds=start)
            for mode in ("tiny", "base", "large", "gundam"):
                for concurrency in (1, 6, 24, 96):
                    bench(server.address, options.page, f"--mode={mode}", f"--concurrency={concurrency}", "--warmup=0",
                          f"--duration={options.seconds}s", "--timeout=2m")
            compare_current("after the load")
            watch.stop()
            metrics = server.metrics()
            batches = {series.split('"')[1]: int(count) for series, count in metrics.items()
                       if series.startswith("deepencoder_batch_size_count{")}
            comparison.add("peak, of the start and the load", total(metrics, PEAK, device=0),
                           free_before - watch.least - context.bytes, name, **kinds_of(metrics, PEAK), batches_by_side=batches)
            process_bytes = nvml and nvml.process_bytes(server.process.pid)
            if process_bytes and context.nvml_bytes:
                comparison.add("current, after the load, by process", total(metrics, CURRENT, device=0),
                               process_bytes - context.nvml_bytes,
                               f"NVML's process, less an idle context ({context.nvml_bytes / MIB:.0f} MiB)")
            else:
                print("NVML names no memory of the processes: not compared")
    left = free_before - wait_until_free(cuda, free_before)
    if abs(left) > 4 * MIB:
        sys.exit(f"somebody else uses this GPU: {left / MIB:.0f} MiB more are gone than before the server started")


def compare_kinds(comparison, options, cuda):
    """The library in this process, which has its context already."""
    import cuda_backend
    import numpy
    import synthetic_checkpoint
    api = cuda_backend.load(options.library)
    depth = (1, 1) if options.small else (12, 24)
    tensors = synthetic_checkpoint.make(*depth)
    free = cuda.free()

    def held(*kinds):
        uses = backend.memory()
        return {kind: uses.get(kind, (0, 0))[0] for kind in kinds}

    def compare(name, before):
        nonlocal free
        now, uses = cuda.free(), held(*before)
        comparison.add(f"library alone: {name}", sum(uses.values()) - sum(before.values()), free - now,
                       "cudaMemGetInfo in its process", **{f"{kind}_mib": round(use / MIB, 1) for kind, use in uses.items()})
        free = now

    backend = cuda_backend.Backend(tensors, *depth, sides=(640, 1024), buckets=(1, 8), api=api)
    compare("weights and code", {"weights": 0, "code": 0})
    slots = []
    for number in (1, 2):
        before = held("workspace", "graphs")
        slots.append(backend.slot())
        compare(f"slot {number}", before)
    page = numpy.zeros((1024, 1024, 3), numpy.uint8)
    views = [backend.view(page)]  # loads its kernel and makes this thread's stream
    free, before = cuda.free(), held("views")
    views += [backend.view(page) for _ in range(200)]
    compare("views of 200 images of 1024 x 1024", before)
    del views
    for slot in slots:
        slot.close()
    backend.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(PROGRAMS / "lib/libdeepencoder_cuda.so"))
    parser.add_argument("--page", default=str(ROOT / "tests/data/images/page_rgb.jpg"))
    parser.add_argument("--seconds", type=float, default=2, help="of each of the 16 loads")
    parser.add_argument("--small", action="store_true", help="a model of one layer each, to try this program")
    parser.add_argument("--hold-context", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.hold_context:
        hold_context(options.library)
        return 0
    options.library = str(pathlib.Path(options.library).resolve())
    cuda = device_queries.Cuda()
    try:
        nvml = device_queries.Nvml(cuda.pci_bus_id)
    except (OSError, RuntimeError) as why:
        print(f"without NVML: {why}")
        nvml = None
    comparison = Comparison(Results(options.out, gpu_names()[0]))
    compare_server(comparison, options, cuda, nvml)
    compare_kinds(comparison, options, cuda)
    print("all within 1 %" if comparison.good else "NOT all within 1 %")
    return 0 if comparison.good else 1


if __name__ == "__main__":
    sys.exit(main())
