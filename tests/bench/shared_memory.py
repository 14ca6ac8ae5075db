#!/usr/bin/env python3
"""Replies through shared memory beside replies through a unix socket, by the C++ and the Python client.

One small image, again and again in mode base: the server answers from its cache, so that what is
measured is the way of 699 KB replies (273 x 1280 bf16). Client and server share the cores.

    cmake -DDEEPENCODER_BENCHMARKS=ON ... && ninja deepencoder-server deepencoder shared_memory_bench
    pip install ./client/python
    python3 tests/bench/shared_memory.py --out tests/bench/results/shared_memory.json

The programs are those in $DEEPENCODER_BIN, else in build/bin. Both sides alternate; the median of the
rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from deepencoder_client import Client
from service_tools import PROGRAMS, ROOT, Server, cpu_name, provenance, synthesize

IMAGE = ROOT / "tests" / "data" / "images" / "exif_1.jpg"  # 4 KB
MODE = "base"
SHARE = 64 << 20


def start_server(folder: Path) -> Server:
    """With a small synthetic checkpoint, a cache, and memory to share."""
    checkpoint = synthesize(folder / "checkpoint", sam_depth=3, clip_layers=2)
    return Server(checkpoint, folder, "--device=cpu", f"--modes={MODE}", "--batch-buckets=1",
                  "--cache-bytes=1GiB", "--metrics-listen=", "--shared-memory",
                  f"--listen=unix:{folder / 'socket'}")  # fmt: skip


def measure_python(client: Client, data: bytes, calls: int) -> tuple[float, float]:
    """Calls per second, one after the other, and their median in milliseconds."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        client.encode(data, mode=MODE)
        seconds.append(time.perf_counter() - start)
    return calls / sum(seconds), 1e3 * statistics.median(seconds)


def main() -> None:
    """Measures, prints and, if asked, writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--calls", type=int, default=1000, help="a round; default: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument(
        "--concurrency", type=int, default=8, help="default: %(default)s"
    )
    parser.add_argument("--out", type=Path, help="JSON file")
    arguments = parser.parse_args()
    values: dict[tuple[str, str, str], list[float]] = defaultdict(
        list
    )  # (what, unit, side)
    copies: dict[str, list[float]] = defaultdict(list)
    data = IMAGE.read_bytes()
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        address = server.address
        lines = subprocess.run(
            [PROGRAMS / "shared_memory_bench", address, IMAGE, str(arguments.calls), str(arguments.rounds),
             str(arguments.concurrency)],
            check=True, capture_output=True, text=True,
        ).stdout.splitlines()  # fmt: skip
        for kind, *fields in map(str.split, lines):
            if kind == "copy":
                copies[fields[0]].append(float(fields[1]))
                continue
            side, width, rate, p50, p99 = fields
            what = f"C++ client, {width} at a time"
            values[what, "images/s", side].append(float(rate))
            values[f"{what}, p50", "ms", side].append(float(p50))
            values[f"{what}, p99", "ms", side].append(float(p99))
        with Client(address) as sent, Client(address) as shared:
            shared.share_memory(SHARE)
            for client in (sent, shared):
                measure_python(client, data, 10)
            for _ in range(arguments.rounds):
                for side, client in (("socket", sent), ("shared", shared)):
                    rate, p50 = measure_python(client, data, arguments.calls)
                    values["Python client, 1 at a time", "images/s", side].append(
                        rate
                    )
                    values["Python client, 1 at a time, p50", "ms", side].append(
                        p50
                    )
    results = [
        result(what, unit, values[what, unit, "shared"], values[what, unit, "socket"],
               "unix socket", unit == "images/s")
        for what, unit, side in values if side == "shared"
    ]  # fmt: skip
    for ours, peer in (
        ("pwrite", "memcpy_to_mapping"),
        ("pread", "memcpy_from_mapping"),
    ):
        results.append(
            result(f"{ours}, copy only", "us", copies[ours], copies[peer], peer, False)
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def result(
    what: str,
    unit: str,
    ours: list[float],
    peer: list[float],
    peer_name: str,
    higher: bool,
) -> dict:
    """A row of the results; printed too."""
    left, right = statistics.median(ours), statistics.median(peer)
    print(
        f"{what}: {left:.4g} {unit}, {peer_name} {right:.4g}: ratio {left / right:.2f}"
    )
    cores = len(os.sched_getaffinity(0))
    return {
        "name": f"replies of 699 KB through shared memory: {what}",
        "unit": unit,
        "ours": round(left, 4),
        "peer": round(right, 4),
        "peer_name": peer_name,
        "ratio": round(left / right, 4),
        "higher_is_better": higher,
        "ours_rounds": [round(value, 4) for value in ours],
        "peer_rounds": [round(value, 4) for value in peer],
        **provenance(f"{cpu_name()}, {cores} cores for client and server"),
    }


if __name__ == "__main__":
    main()
