#!/usr/bin/env python3
"""Does the server's memory stay flat? Hours of work at 80 % load, on the CPU backend with a small checkpoint, or on a GPU.

    soak.py [--minutes 60] [--reload-every SECONDS] [--device cpu|cuda] [--keep] [--out tests/bench/results/soak.json]

Measures what the server can take (closed loop), then sends 80 % of it at random times: pages of five sizes in four modes, so that
blocks of many sizes come and go, while one client in ten (at most four a second) leaves before its answer and the result cache is
full and turning over. --reload-every also reloads the weights, in turn from two checkpoints. Resident memory is read every second;
after the warm-up (a sixth of the time) the median of the last sixth must be at most 2 % above that of the first sixth behind it.
What counts is the memory in the tenth of the seconds with the least images under way, mostly none: what those take goes as it came,
and how many wait depends on what else the machine does. For the same reason no more than so many are under way as keep the device busy; others wait at the client.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from service_tools import PROGRAMS, Results, Server, bench, cpu_name, gpu_names, synthesize, total

BAR = 0.02
LOAD = 0.8
SIZES = "320x240,640x900,900x1200,1240x1754,1700x2200"
MIX = "tiny:4,small:2,base:1,gundam:1"
MOST_LEAVERS = 4  # a second: each is a process of its own


def status_kib(pid, key):
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


class Leavers(threading.Thread):
    """Clients that give up: calls whose deadline is far shorter than an encoding."""

    def __init__(self, address, page, rate):
        super().__init__(daemon=True)
        self.address, self.page, self.rate, self.random = address, page, rate, random.Random(1)
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(self.random.expovariate(self.rate)):
            subprocess.run([PROGRAMS / "deepencoder", "encode", self.page, f"--server={self.address}", "--mode=gundam",
                            "--timeout=20ms"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Reloads(threading.Thread):
    """`deepencoder reload`, from the checkpoints in turn."""

    def __init__(self, admin, models, period):
        super().__init__(daemon=True)
        self.admin, self.models, self.period, self.done = admin, models, period, 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(self.period):
            model = self.models[(self.done + 1) % len(self.models)]
            subprocess.run([PROGRAMS / "deepencoder", "reload", f"--server={self.admin}", f"--model={model}", "--timeout=10m"],
                           check=True, stdout=subprocess.DEVNULL)
            self.done += 1


def samples_while(load, server):
    """(seconds, resident KiB, anonymous KiB, images in flight) every second until `load` ends."""
    samples, start = [], time.monotonic()
    while load.poll() is None:
        pid = server.process.pid
        if server.process.poll() is not None:
            sys.exit("the server ended:\n" + server.log_path.read_text())
        samples.append((time.monotonic() - start, status_kib(pid, "VmRSS"), status_kib(pid, "RssAnon"),
                        total(server.metrics(), "deepencoder_in_flight")))
        time.sleep(1)
    return samples


def between(samples, begin, end, column=1):
    return [sample[column] for sample in samples if begin <= sample[0] < end]


def calm(samples, begin, end):
    """The tenth of them with the least images under way."""
    part = sorted((sample for sample in samples if begin <= sample[0] < end), key=lambda sample: sample[3])
    return part[:max(1, len(part) // 10)]


def mebibytes(samples, column=1):
    return round(statistics.median(sample[column] for sample in samples) / 1024, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--reload-every", type=float, default=0, help="seconds; 0: never")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--keep", action="store_true", help="what --out has under other names")
    parser.add_argument("--out")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    depths, concurrency, most_waiting = ((3, 2), 4, 12) if on_cpu else ((12, 24), 128, 192)
    with tempfile.TemporaryDirectory() as folder:
        models = [synthesize(f"{folder}/model{seed}", *depths, seed) for seed in range(2 if options.reload_every else 1)]
        admin = f"unix:{folder}/admin"
        flags = [f"--device={options.device}", "--cache-bytes=2MiB", "--modes=tiny,small,base,gundam"]
        flags += ["--threads=1", "--decode-threads=1"] if on_cpu else []
        flags += [f"--admin-listen={admin}"] if options.reload_every else []
        with Server(models[0], folder, *flags) as server:
            load_flags = [f"--mode={MIX}", f"--size={SIZES}", "--warmup=5s"]
            most = bench(server.address, *load_flags, f"--concurrency={concurrency}", "--duration=30s")[0]["images_per_second"]
            seconds = options.minutes * 60
            load = subprocess.Popen([PROGRAMS / "deepencoder", "bench", f"--server={server.address}", *load_flags,
                                     f"--rate={LOAD * most:.3f}", f"--duration={seconds:.0f}s", f"--json={folder}/load.json",
                                     f"--max-outstanding={most_waiting}"],
                                    stdout=subprocess.DEVNULL)
            page = pathlib.Path(__file__).resolve().parents[1] / "data/images/page_rgb.jpg"
            helpers = [Leavers(server.address, page, min(LOAD * most / 10, MOST_LEAVERS))]
            helpers += [Reloads(admin, models, options.reload_every)] if options.reload_every else []
            for helper in helpers:
                helper.start()
            samples = samples_while(load, server)
            for helper in helpers:
                helper.ended.set()
            for helper in helpers:
                helper.join()
            metrics = server.metrics()
            point = json.loads(pathlib.Path(f"{folder}/load.json").read_text())["points"][0]
    part = seconds / 6
    windows = [(begin, begin + part) for begin in (part, samples[-1][0] - part)]
    first, last = (calm(samples, *window) for window in windows)
    before, after = (statistics.median(sample[1] for sample in part_of) for part_of in (first, last))
    steady = between(samples, part, samples[-1][0] + 1)
    device = f"{cpu_name()}, 1 encoder thread" if on_cpu else gpu_names()[0]
    Results(options.out, device, options.keep).add(
        f"resident memory, least under way, after {options.minutes:g} minutes at {LOAD:.0%} load" +
        (", on a GPU" if not on_cpu else "") + (", reloading" if options.reload_every else ""),
        "MiB", after / 1024, before / 1024, "median behind the warm-up", False,
        under_way=[int(max(sample[3] for sample in part_of)) for part_of in (first, last)],
        anonymous=[mebibytes(part_of, 2) for part_of in (first, last)],
        at_any_moment=[round(statistics.median(between(samples, *window)) / 1024, 1) for window in windows],
        lowest=round(min(steady) / 1024, 1), highest=round(max(steady) / 1024, 1),
        every_minute=[mebibytes(calm(samples, begin, begin + 60)) for begin in range(0, int(samples[-1][0]) - 1, 60)],
        images_per_second=round(most, 2), images=int(total(metrics, "deepencoder_images_total")), unsent=point["unsent"],
        dropped=int(total(metrics, "deepencoder_dropped_total")), reloads=int(total(metrics, "deepencoder_reloads_total", result="ok")),
        cache_hits=int(total(metrics, "deepencoder_cache_requests_total", result="hit")))
    return int(after / before - 1 > BAR)


if __name__ == "__main__":
    sys.exit(main())
