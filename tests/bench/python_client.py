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
import datetime
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deepencoder_client import AsyncClient, Client

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "tests" / "data" / "images" / "exif_1.jpg"  # 4 KB
MODE = "base"
SHORT = 100  # images of the run that is taken off


def start_server(programs: Path, folder: Path) -> tuple[subprocess.Popen, str]:
    """A server with a small synthetic checkpoint and a cache; its process and address."""
    checkpoint, ready = folder / "checkpoint", folder / "ready"
    subprocess.run(
        [programs / "deepencoder", "checkpoint", "synthesize", checkpoint,
         "--sam-depth", "3", "--clip-layers", "2"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [programs / "deepencoder-server", f"--model={checkpoint}", "--device=cpu",
             f"--modes={MODE}", "--batch-buckets=1", "--cache-bytes=1GiB", "--metrics-listen=",
             "--listen=127.0.0.1:0", f"--ready-file={ready}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    while not (ready.exists() and ready.read_text().endswith("\n")):
        if process.poll() is not None:
            sys.exit(f"the server ended:\n{(folder / 'log').read_text()}")
        time.sleep(0.05)
    return process, ready.read_text().splitlines()[0].removeprefix("grpc=")


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
    programs = Path(os.environ.get("DEEPENCODER_BIN", ROOT / "build" / "bin"))
    count, concurrency = arguments.images, arguments.concurrency
    rates: dict[str, list[float]] = {"sync": [], "asyncio": [], "C++": []}
    with tempfile.TemporaryDirectory() as folder:
        server, address = start_server(programs, Path(folder))
        try:
            for _ in range(arguments.rounds):
                rates["sync"].append(rate_sync(address, count, concurrency))
                rates["C++"].append(rate_cpp(programs / "deepencoder", address, count, concurrency))
                rates["asyncio"].append(asyncio.run(rate_async(address, count, concurrency)))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    device = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores for client and server"
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
            "device": device,
            "commit": commit,
            "command": shlex.join(["python3", "tests/bench/python_client.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(),
        })  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def cpu_name() -> str:
    """As Linux calls it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


if __name__ == "__main__":
    main()
