#!/usr/bin/env python3
"""The tables of deploy/README.md's capacity page, from what service_gpu.py measured.

    capacity_table.py [tests/bench/results/service_gpu.json]

Prints a table for each part that was measured; what was not is left out.
"""
import json
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).parent / "results/service_gpu.json"


def table(head, lines):
    """Markdown; nothing without lines."""
    if not lines:
        return ""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def figure(value):
    """Three digits that count, never in powers of ten."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def sizes(batches):
    """{"1024": 32} -> "1024: 32"."""
    return ", ".join(f"{side}: {size:g}" for side, size in batches.items())


class Page:
    def __init__(self, rows):
        self.rows = {row["name"]: row for row in rows}

    def matching(self, pattern):
        """(what the pattern's groups are, the row) of every row whose name it matches."""
        for name, row in self.rows.items():
            if found := re.fullmatch(pattern, name):
                yield found.groups(), row

    def saturation(self):
        lines = []
        for (mode,), row in self.matching("(\\w+): saturation"):
            used = self.rows[f"{mode}: processors at saturation"]
            lines.append([mode, figure(row["ours"]), f"{1e3 / row['ours']:.2f} ms", f"{row['ratio']:.3f}" if row["ratio"] else "",
                          sizes(row["mean_batch"]), figure(used["decode_threads_busy"]), figure(used["ours"])])
        return table(["mode", "images/s", "GPU time of a page", "of the engine alone", "mean batch", "decode threads busy",
                      "processors of the server"], lines)

    def latency(self):
        lines = []
        for (mode,), row in self.matching("(\\w+): concurrency 1, .*"):
            lines.append([mode, "one request at a time", figure(row["latency_ms"]["p50"]), figure(row["latency_ms"]["p99"]), "",
                          f"{row['added_ms']:.2f} ms"])
        for (mode,), row in self.matching("(\\w+): half load, .*"):
            lines.append([mode, f"half, {figure(row['rate'])} images/s", figure(row["peer"]), figure(row["ours"]), f"{row['ratio']:.2f}", ""])
        return table(["mode", "load", "p50, ms", "p99, ms", "p99 / p50", "beside decode, views and encoder"], lines)

    def gaps(self):
        lines = [[mode, f"{row['ours']:.3f} ms", str(row["gaps_over_half_ms"]), f"{100 * row['idle_share']:.2f} %"]
                 for (mode,), row in self.matching("(\\w+): longest idle gap of the GPU at saturation")]
        return table(["mode", "longest idle gap", "gaps over 0.5 ms", "idle in all"], lines)

    def cores(self):
        lines = [[count, figure(row["ours"]), f"{row['ratio']:.2f}"]
                 for (count,), row in self.matching("base: saturation with the server on (\\d+) processors")]
        return table(["processors of the server", "images/s in base", "of all processors"], lines)

    def devices(self):
        lines = [[mode, count, figure(row["ours"]), figure(row["peer"]), f"{row['ratio']:.2f}"]
                 for (mode, count), row in self.matching("(\\w+): saturation with (\\d+) GPUs")]
        return table(["mode", "GPUs", "images/s", "of one GPU", "ratio"], lines)

    def peer(self):
        lines = []
        for (mode,), row in self.matching("(\\w+): saturation beside the peer"):
            lines.append([mode, "images/s at saturation", figure(row["ours"]), figure(row["peer"]), f"{row['ratio']:.2f}"])
        for (mode, quantile), row in self.matching("(\\w+): (p\\d+) at half of the peer's saturated rate"):
            lines.append([mode, f"{quantile} at {figure(row['rate'])} images/s", f"{figure(row['ours'])} ms", f"{figure(row['peer'])} ms",
                          f"{row['ratio']:.2f}"])
        return table(["mode", "", "this server", "PyTorch behind Python gRPC", "ratio"], lines)

    def model(self):
        lines = [[load, quantile, f"{figure(row['ours'])} ms", f"{figure(row['peer'])} ms", f"{row['ratio']:.2f}"]
                 for (quantile, load), row in self.matching("base: (p\\d+) at (\\d+%) load, by the queue model")]
        return table(["load", "", "predicted", "measured", "ratio"], lines)

    def text(self):
        parts = (self.saturation(), self.latency(), self.gaps(), self.cores(), self.devices(), self.peer(), self.model())
        return "\n".join(part for part in parts if part)


def main():
    print(Page(json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else RESULTS).read_text())).text(), end="")


if __name__ == "__main__":
    main()
