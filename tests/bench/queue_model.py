#!/usr/bin/env python3
"""Latency from load: a simulation of the server's decode pool, batcher and slots, and its comparison with a real server.

    queue_model.py predict --rate 50 100 --times 1024=1:3.4,8:17.3 --decode 9 [--views 1024:1] [--slots 2] ...
    queue_model.py check [--out tests/bench/results/queue_model.json]       measures on the CPU backend with a small model

The model, which follows server/engine: images arrive at random times (Poisson). Each is decoded by the first free of
--decode-threads threads, then its views wait in the line of their side. An idle slot takes at once what waits (batch_queue.h: the
line whose head came first, rounds of one view an image, up to the largest bucket, not more than a quarter of a bucket padding),
and works for the time of the bucket, which is measured; between measured sizes it is interpolated. Slots share their device: k
busy ones each work at 1/k of the speed, as batches that fill the device do, but of large batches, of --large patches of 16 x 16
pixels or more, only the first does, and the others wait for it (encoder/cuda/batch_order.h). Times vary by --spread (the standard
deviation of their logarithm). An image is done with its last view. All times in milliseconds.
"""
import argparse
import bisect
import collections
import heapq
import itertools
import math
import pathlib
import random
import sys
import tempfile

PADDING = 0.25  # BatchPolicy::max_padding
LARGE = 4 * 64 * 64  # kLargeBatch of encoder/cuda/slot.cc
PATCH_SIDE = 16  # pixels


class Times:
    """Milliseconds of a batch, by its size: linear between the sizes that were measured, and beyond them."""

    def __init__(self, measured):
        self.sizes, self.values = zip(*sorted(measured.items()))

    def __call__(self, size):
        if len(self.sizes) == 1:
            return self.values[0] * size / self.sizes[0]
        right = min(max(bisect.bisect_left(self.sizes, size), 1), len(self.sizes) - 1)
        x0, x1 = self.sizes[right - 1:right + 1]
        y0, y1 = self.values[right - 1:right + 1]
        return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


class Line:
    """The views of one side that wait, by image, first come first."""

    def __init__(self):
        self.waiting, self.views = collections.OrderedDict(), 0

    def add(self, image, views, order):
        self.waiting[image] = [order, views]
        self.views += views

    def take(self, count, orders):
        """One view an image and round; images that gave one go to the end with the rest. {image: views}"""
        taken = collections.Counter()
        self.views -= count
        while count:
            for image in list(self.waiting):
                if count and self.waiting[image][1]:
                    self.waiting[image][1] -= 1
                    taken[image] += 1
                    count -= 1
        for image in list(taken):
            _, left = self.waiting.pop(image)
            if left:
                self.waiting[image] = [next(orders), left]
        return taken

    def head(self):
        return next(iter(self.waiting.values()))[0]


class Simulation:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.orders = itertools.count()

    def batch_size(self, waiting):
        buckets = self.options.buckets
        if waiting >= buckets[-1]:
            return buckets[-1]
        at = bisect.bisect_left(buckets, waiting)
        if (buckets[at] - waiting) / buckets[at] <= PADDING or at == 0:
            return waiting
        return buckets[at - 1]

    def vary(self, milliseconds):
        """With the same median."""
        return milliseconds * math.exp(self.random.gauss(0, self.options.spread))

    def work(self, side, size):
        options = self.options
        ran = size if options.exact else options.buckets[bisect.bisect_left(options.buckets, size)]
        return self.vary(options.times[side](ran))

    def is_large(self, side, size):
        return size * (side // PATCH_SIDE) ** 2 >= self.options.large

    def run(self, rate, images):
        """Latencies (ms) of `images` images, the first tenth left out."""
        options, events = self.options, []
        lines = {side: Line() for side in options.views}
        arrived, left = {}, {}
        running = {}  # batch, ascending: [work left in ms of a slot that has the device to itself, its images, is it large]
        decoding, to_decode, now, latencies = 0, collections.deque(), 0.0, []
        batches = itertools.count()
        next_arrival, arrivals = self.random.expovariate(rate / 1e3), 0

        def fill_slots():
            while len(running) < options.slots and any(line.views for line in lines.values()):
                side = min((side for side in lines if lines[side].views), key=lambda side: lines[side].head())
                size = self.batch_size(lines[side].views)
                running[next(batches)] = [self.work(side, size), lines[side].take(size, self.orders), self.is_large(side, size)]

        def at_work():
            """The small batches and the first of the large ones."""
            first_large = next((batch for batch, (_, _, large) in running.items() if large), None)
            return [batch for batch, (_, _, large) in running.items() if not large or batch == first_large]

        while len(latencies) < images:
            sharing = at_work()
            first = min(sharing, key=lambda batch: running[batch][0], default=None)
            batch_end = now + running[first][0] * len(sharing) if running else math.inf
            decode_end = events[0][0] if events else math.inf
            then = min(next_arrival, batch_end, decode_end)
            for batch in sharing:
                running[batch][0] -= (then - now) / len(sharing)
            now = then
            if now == batch_end:
                for image, views in running.pop(first)[1].items():
                    left[image] -= views
                    if left[image] == 0:
                        del left[image]
                        latencies.append(now - arrived.pop(image) + options.overhead)
            elif now == decode_end:
                _, image = heapq.heappop(events)
                decoding -= 1
                left[image] = sum(options.views.values())
                for side, views in options.views.items():
                    lines[side].add(image, views, next(self.orders))
            else:
                arrived[arrivals] = now
                to_decode.append(arrivals)
                arrivals += 1
                next_arrival = now + self.random.expovariate(rate / 1e3)
            while to_decode and decoding < options.decode_threads:
                decoding += 1
                heapq.heappush(events, (now + self.vary(options.decode), to_decode.popleft()))
            fill_slots()
        return latencies[images // 10:]


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def predict(options, rate):
    latencies = Simulation(options).run(rate, options.images)
    return {name: quantile(latencies, share) for name, share in (("p50", 0.5), ("p99", 0.99))}


def parse_times(texts):
    """1024=1:3.4,8:17.3 -> {1024: Times}"""
    times = {}
    for text in texts:
        side, _, pairs = text.partition("=")
        times[int(side)] = Times({int(size): float(ms) for size, _, ms in (pair.partition(":") for pair in pairs.split(","))})
    return times


# ---------------------------------------------------------------- against a real server

CHECK_SIDE, CHECK_BUCKETS = 512, [1, 2, 4, 8]
CHECK_LOADS = (0.3, 0.6, 0.8)


def batches_between(before, after):
    """(mean views, mean ms) of the batches that ran between two scrapes."""
    from service_tools import total
    views, count, seconds = (total(after, name) - total(before, name) for name in (
        "deepencoder_batch_size_sum", "deepencoder_batch_size_count", "deepencoder_batch_compute_seconds_sum"))
    return views / count, 1e3 * seconds / count


def calibrate(server, page, seconds):
    """Points of (views, ms) of a batch, ms of decode and views, ms of the rest, spread: from closed loops of several widths."""
    from service_tools import bench
    points, alone = [], None
    for concurrency in (1, 3, 5, 9):
        before = server.metrics()
        point = bench(server.address, page, "--mode=tiny", f"--concurrency={concurrency}", f"--duration={seconds}s", "--warmup=1s")[0]
        points.append(batches_between(before, server.metrics()))
        alone = alone or point
    stages = {stage: 1e3 * values["p50"] for stage, values in alone["stage_seconds"].items()}
    decode = stages["decode"] + stages["views"]
    overhead = max(1e3 * alone["latency_seconds"]["p50"] - decode - stages["compute"], 0)
    compute = alone["stage_seconds"]["compute"]
    spread = math.log(compute["p90"] / compute["p50"]) / 1.2816  # of a normal distribution
    return points, decode, overhead, spread


def fit(points):
    """Least squares: ms = a + b views."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return max(mean_y - slope * mean_x, 0), slope


def check(options):
    from service_tools import Results, Server, bench, cpu_name, synthesize
    page = str(pathlib.Path(__file__).resolve().parents[1] / "data/images/exif_1.jpg")
    options.views, options.buckets, options.slots, options.decode_threads, options.exact = {CHECK_SIDE: 1}, CHECK_BUCKETS, 1, 1, True
    options.large = math.inf  # the CPU backend has no such order
    with tempfile.TemporaryDirectory() as folder:
        model = synthesize(f"{folder}/model", 1, 1)
        flags = ["--device=cpu", "--threads=1", "--slots=1", "--decode-threads=1", "--modes=tiny", "--batch-buckets=1,2,4,8"]
        with Server(model, folder, *flags) as server:
            results = Results(options.out, f"{cpu_name()}, 1 encoder thread")
            points, options.decode, options.overhead, options.spread = calibrate(server, page, options.seconds / 4)
            fixed, each = fit(points)
            most = 1e3 * CHECK_BUCKETS[-1] / (fixed + each * CHECK_BUCKETS[-1])
            for load in CHECK_LOADS:
                before = server.metrics()
                measured = bench(server.address, page, "--mode=tiny", f"--rate={load * most:.3f}", f"--duration={options.seconds}s")[0]
                # On a machine that others use, times change from minute to minute: those of this very run are taken.
                size, milliseconds = batches_between(before, server.metrics())
                pace = milliseconds / (fixed + each * size)
                options.times = {CHECK_SIDE: Times({size: pace * (fixed + each * size) for size in CHECK_BUCKETS})}
                predicted = predict(options, load * most)
                for name in ("p50", "p99"):
                    results.add(f"queue model, {name} at {load * most * milliseconds / size / 1e3:.0%} load", "ms", predicted[name],
                                1e3 * measured["latency_seconds"][name], "measured", False, rate=round(load * most, 2),
                                images=measured["images"], batch_ms=[round(pace * fixed, 2), round(pace * each, 2)],
                                decode_ms=round(options.decode, 2), spread=round(options.spread, 3), mean_batch=round(size, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("predict", "check"))
    parser.add_argument("--images", type=int, default=20000, help="simulated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, nargs="+", help="images a second")
    parser.add_argument("--times", nargs="+", help="SIDE=SIZE:MS,SIZE:MS,...")
    parser.add_argument("--views", nargs="+", default=["1024:1"], help="SIDE:COUNT of an image")
    parser.add_argument("--buckets", type=lambda text: [int(size) for size in text.split(",")], default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--large", type=float, default=LARGE, help="patches in a batch from which it waits for others of its kind")
    parser.add_argument("--decode", type=float, default=0, help="ms of decoding and views of an image")
    parser.add_argument("--decode-threads", type=int, default=16)
    parser.add_argument("--overhead", type=float, default=0, help="ms of an image outside of all this")
    parser.add_argument("--spread", type=float, default=0)
    parser.add_argument("--exact", action="store_true", help="a batch takes the time of its size, not of its bucket (the CPU backend)")
    parser.add_argument("--seconds", type=float, default=40, help="check: of a measurement")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.what == "check":
        return check(options)
    if not options.rate or not options.times:
        parser.error("predict needs --rate and --times")
    options.times = parse_times(options.times)
    options.views = {int(side): int(count) for side, _, count in (view.partition(":") for view in options.views)}
    for rate in options.rate:
        predicted = predict(options, rate)
        print(f"{rate:9.1f} images/s   p50 {predicted['p50']:9.2f} ms   p99 {predicted['p99']:9.2f} ms", flush=True)


if __name__ == "__main__":
    sys.exit(main())
