#!/usr/bin/env python3
"""Good answers a second when more is asked for than a server can do: 1, 2 and 5 times its capacity.

A server on the CPU with a small synthetic checkpoint. Its capacity is what a closed loop gets; then
requests come at random times, whatever the server does (`deepencoder bench --rate`), each with a
deadline. What is answered after its deadline does not count. Client and server share the cores.

    python3 tests/bench/overload.py --out tests/bench/results/overload.json

With --device-ms=100 the device is a simulated one whose batches take so long whatever else the
machine does (the tests' deepencoder-server-faults, which computes a hash): the queues, the batches
and the refusals are the real ones, and the figures do not depend on how busy the machine is.

The programs are those in $DEEPENCODER_BIN, else in build/bin. Rounds repeat every load in turn, so
that a machine that gets slower meanwhile does so for all; the medians count.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(os.environ.get("DEEPENCODER_BIN", ROOT / "build" / "bin"))
IMAGE = ROOT / "tests" / "data" / "images" / "small_page.png"


def start_server(folder: Path, flags: list[str], device_ms: int) -> tuple[subprocess.Popen, str]:
    """A server with a small synthetic checkpoint; its process and address."""
    program, rules = PROGRAMS / "deepencoder-server", folder / "rules"
    if device_ms:
        program = PROGRAMS.parent / "tests" / "deepencoder-server-faults"
        rules.write_text(f"encode slow ms={device_ms}\n")
    checkpoint, ready = folder / "checkpoint", folder / "ready"
    subprocess.run(
        [PROGRAMS / "deepencoder", "checkpoint", "synthesize", checkpoint,
         "--sam-depth", "1", "--clip-layers", "1"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, f"--model={checkpoint}", "--device=cpu", "--modes=tiny",
             "--batch-buckets=1,2,4", "--metrics-listen=", f"--listen=unix:{folder}/socket",
             f"--ready-file={ready}", *flags],
            stdout=log, stderr=log, env={**os.environ, "FAULT_RULES_FILE": str(rules)},
        )  # fmt: skip
    while not (ready.exists() and ready.read_text().endswith("\n")):
        if process.poll() is not None:
            sys.exit(f"the server ended:\n{(folder / 'log').read_text()}")
        time.sleep(0.05)
    return process, f"unix:{folder}/socket"


def bench(address: str, *flags: str) -> dict:
    """The one point that `deepencoder bench` measures."""
    done = subprocess.run(
        [PROGRAMS / "deepencoder", "bench", IMAGE, f"--server={address}", "--mode=tiny",
         "--json=-", *flags],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["points"][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", default="1,2,5", help="multiples of the capacity")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="of each point")
    parser.add_argument("--deadline", default="1s", help="of each request")
    parser.add_argument("--device-ms", type=int, default=0, help="of a batch of a simulated device")
    parser.add_argument("--server-flag", action="append", default=[], help="more flags of the server")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loads = [float(load) for load in options.loads.split(",")]
    duration = f"--duration={options.seconds}s"

    points: dict[float, list[dict]] = {load: [] for load in loads}
    capacities = []
    with tempfile.TemporaryDirectory() as folder:
        process, address = start_server(Path(folder), options.server_flag, options.device_ms)
        try:
            for _ in range(options.rounds):
                capacity = bench(address, "--concurrency=8", duration)["images_per_second"]
                capacities.append(capacity)
                print(f"capacity {capacity:.1f} images/s", flush=True)
                for load in loads:
                    point = bench(
                        address, f"--rate={capacity * load}", f"--timeout={options.deadline}",
                        "--max-outstanding=20000", duration,
                    )  # fmt: skip
                    points[load].append({"capacity": capacity, **point})
                    print(
                        f"  {load:g} x: {point['images_per_second'] / capacity:.2f} of it well "
                        f"answered, p99 {point['latency_seconds']['p99']:.2f} s, {point['errors']}",
                        flush=True,
                    )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

    goodput = {
        f"{load:g}": statistics.median(p["images_per_second"] / p["capacity"] for p in points[load])
        for load in loads
    }
    most = max(goodput.values())
    for load, share in goodput.items():
        print(f"{load} x capacity: goodput {share:.3f} of capacity, {share / most:.3f} of its maximum")
    if options.out:
        options.out.write_text(json.dumps({
            "what": "goodput of open-loop load beyond capacity; see tests/bench/overload.py",
            "date": datetime.date.today().isoformat(),
            "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "arguments": sys.argv[1:],
            "capacity_images_per_second": capacities,
            "goodput_of_capacity": goodput,
            "points": {f"{load:g}": points[load] for load in loads},
        }, indent=1) + "\n")  # fmt: skip


if __name__ == "__main__":
    main()
