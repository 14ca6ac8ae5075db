#!/usr/bin/env python3
"""Good answers a second when more is asked for than a server can do: 1, 2 and 5 times its capacity.

A server on the CPU with a small synthetic checkpoint. Its capacity is what a closed loop gets; then
requests come at random times, whatever the server does (`deepencoder bench --rate`), each with a
deadline. What is answered after its deadline does not count. Client and server share the cores.

    python3 tests/bench/overload.py --out tests/bench/results/overload.json

With --device-ms=100 the device is a simulated one whose batches take so long whatever else the
machine does (the tests' deepencoder-server-faults, which computes a hash): the queues, the batches
and the refusals are the real ones, and the figures do not depend on how busy the machine is.

Rounds repeat every load in turn, so that a machine that gets slower meanwhile does so for all; the
medians count.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile

from service_tools import PROGRAMS, ROOT, Server, bench, cpu_name, provenance, synthesize

IMAGE = ROOT / "tests/data/images/small_page.png"


def start_server(folder, flags, device_ms):
    """A server with a small synthetic checkpoint, on a unix socket."""
    program, environment = None, {}
    if device_ms:
        rules = pathlib.Path(folder) / "rules"
        rules.write_text(f"encode slow ms={device_ms}\n")
        program, environment = PROGRAMS.parent / "tests/deepencoder-server-faults", {"FAULT_RULES_FILE": str(rules)}
    return Server(synthesize(f"{folder}/checkpoint", 1, 1), folder, "--device=cpu", "--modes=tiny", "--batch-buckets=1,2,4",
                  "--metrics-listen=", f"--listen=unix:{folder}/socket", *flags, program=program, environment=environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", default="1,2,5", help="multiples of the capacity")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="of each point")
    parser.add_argument("--deadline", default="1s", help="of each request")
    parser.add_argument("--device-ms", type=int, default=0, help="of a batch of a simulated device")
    parser.add_argument("--server-flag", action="append", default=[], help="more flags of the server")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    loads = [float(load) for load in options.loads.split(",")]
    common = [IMAGE, "--mode=tiny", f"--duration={options.seconds}s"]

    points = {load: [] for load in loads}
    capacities = []
    with tempfile.TemporaryDirectory() as folder, start_server(folder, options.server_flag, options.device_ms) as server:
        for _ in range(options.rounds):
            capacity = bench(server.address, *common, "--concurrency=8")[0]["images_per_second"]
            capacities.append(capacity)
            print(f"capacity {capacity:.1f} images/s", flush=True)
            for load in loads:
                point = bench(server.address, *common, f"--rate={capacity * load}", f"--timeout={options.deadline}",
                              "--max-outstanding=20000")[0]
                points[load].append({"capacity": capacity, **point})
                print(f"  {load:g} x: {point['images_per_second'] / capacity:.2f} of it well answered, "
                      f"p99 {point['latency_seconds']['p99']:.2f} s, {point['errors']}", flush=True)

    goodput = {f"{load:g}": statistics.median(p["images_per_second"] / p["capacity"] for p in points[load]) for load in loads}
    most = max(goodput.values())
    for load, share in goodput.items():
        print(f"{load} x capacity: goodput {share:.3f} of capacity, {share / most:.3f} of its maximum")
    if options.out:
        options.out.write_text(json.dumps({
            "what": "goodput of open-loop load beyond capacity; see tests/bench/overload.py", "cores": os.cpu_count(),
            "device_ms": options.device_ms, "capacity_images_per_second": capacities, "goodput_of_capacity": goodput,
            "goodput_of_maximum": {load: share / most for load, share in goodput.items()},
            "load_average": round(os.getloadavg()[0], 1), **provenance(cpu_name()),
            "points": {f"{load:g}": points[load] for load in loads},
        }, indent=1) + "\n")


if __name__ == "__main__":
    main()
