#!/usr/bin/env python3
"""Throughput of the Python client beside the C++ one, on one machine.

One small image, again and again in mode base: the server answers from its cache, so that what is
measured is the way of 699 KB replies (273 x 1280 bf16). Client and server share the cores.

    pip install ./client/python
    python3 tests/bench/python_client.py --out tests/bench/results/python_client.json

The programs are those in $DEEPENCODER_BIN, else in build/bin. The C++ one's start and connection
are taken out by the difference of a long and a short run. Runs alternate; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from deepencoder_client import AsyncClient, Client
from service_tools import PROGRAMS, ROOT, Server, cpu_name, provenance, synthesize

IMAGE = ROOT / "tests" / "data" / "images" / "exif_1.jpg"  # 4 KB
MODE = "base"
SHORT = 100  # images of the run that is taken off


def start_server(folder: Path) -> Server:
    """With a small synthetic checkpoint and a cache."""
    checkpoint = synthesize(folder / "checkpoint", sam_depth=3, clip_layers=2)
    return Server(checkpoint, folder, "--device=cpu", f"--modes={MODE}", "--batch-buckets=1",
                  "--cache-bytes=1GiB", "--metrics-listen=")  # fmt: skip


def rate_sync(address: str, images: int, concurrency: int) -> float:
    """Images per second of Client.encode_many."""
    data = IMAGE.read_bytes()
    with Client(address) as client:
        client.encode(data, mode=MODE)
        start = time.perf_counter()
        for result in client.encode_many([data] * images, concurrency=concurrency, mode=MODE):
            result.unwrap()
        return images / (time.perf_counter() - start)


async def rate_async(address: str, images: int, concurrency: int) -> float:
    """Images per second of AsyncClient.encode_many."""
    data = IMAGE.read_bytes()
    async with AsyncClient(address) as client:
        await client.encode(data, mode=MODE)
        start = time.perf_counter()
        async for result in client.encode_many([data] * images, concurrency=concurrency, mode=MODE):
            result.unwrap()
        return images / (time.perf_counter() - start)


def rate_cpp(program: Path, address: str, images: int, concurrency: int) -> float:
    """Images per second of `deepencoder encode`, which reads its files and keeps one stream."""

    def seconds(count: int) -> float:
        start = time.perf_counter()
        status = subprocess.run(
            [program, "encode", *[IMAGE] * count, f"--mode={MODE}", "--quiet",
             f"--server={address}", f"--concurrency={concurrency}"],
        ).returncode  # fmt: skip
        if status != 0:
            sys.exit(f"the C++ client ended with status {status}")
        return time.perf_counter() - start

    return images / (seconds(images + SHORT) - seconds(SHORT))


def main() -> None:
    """Measures, prints and, if asked, writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000, help="a run; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--concurrency", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="JSON file")
    arguments = parser.parse_args()
    count, concurrency = arguments.images, arguments.concurrency
    rates: dict[str, list[float]] = {"sync": [], "asyncio": [], "C++": []}
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        address = server.address
        for _ in range(arguments.rounds):
            rates["sync"].append(rate_sync(address, count, concurrency))
            rates["C++"].append(rate_cpp(PROGRAMS / "deepencoder", address, count, concurrency))
            rates["asyncio"].append(asyncio.run(rate_async(address, count, concurrency)))
    cores = len(os.sched_getaffinity(0))
    common = provenance(f"{cpu_name()}, {cores} cores for client and server")
    peer = statistics.median(rates["C++"])
    results = []
    for name in ("sync", "asyncio"):
        ours = statistics.median(rates[name])
        print(f"{name}: {ours:.0f} images/s, C++ {peer:.0f}: ratio {ours / peer:.2f}")
        results.append({
            "name": f"python client, {name}, replies of 699 KB",
            "unit": "images/s",
            "ours": round(ours, 1),
            "peer": round(peer, 1),
            "peer_name": "C++ client",
            "ratio": round(ours / peer, 4),
            "higher_is_better": True,
            "ours_rounds": [round(rate, 1) for rate in rates[name]],
            "peer_rounds": [round(rate, 1) for rate in rates["C++"]],
            **common,
        })  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
